package endpoint

import "github.com/cotal-go/cotal/wire"

// Progress is a progress.
type Progress = progress

// Its methods, for tests.
func (p *progress) Has(seq uint64) bool                    { return p.has(seq) }
func (p *progress) Reach(seq uint64)                       { p.reach(seq) }
func (p *progress) Add(from, to uint64)                    { p.add(from, to) }
func (p *progress) Grow(seq uint64, fresh bool)            { p.grow(seq, fresh) }
func (p *progress) Begin(seq uint64)                       { p.begin(seq) }
func (p *progress) Settle(seq uint64)                      { p.settle(seq) }
func (p *progress) Full() bool                             { return p.full() }
func (p *progress) Report() (uint64, []wire.SequenceRange) { return p.report() }
