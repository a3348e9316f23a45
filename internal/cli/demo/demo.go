// Package demo plays a short, real scene on a real mesh: an authenticated space on the embedded broker, scripted
// peers that find each other, talk, send a direct message, hand a job to whoever serves a role, leave and join late,
// and an outsider's tricks that the broker refuses. Nothing in it is made up: every line is printed when it happens,
// with the sender that the broker vouches for, and the end counts what was really sent, received and refused.
package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Line is one event of the transcript.
type Line struct {
	V    int           `json:"v"` // version of this shape, 1
	At   time.Duration `json:"atNs"`
	What string        `json:"what"`           // scene, channel, direct, role, presence, missed, history, refused
	Who  string        `json:"who,omitempty"`  // the principal that the broker vouches for
	To   string        `json:"to,omitempty"`   // channel, principal or role
	Text string        `json:"text,omitempty"` // message text, or what happened
}

// Summary is what the demo proved.
type Summary struct {
	V        int           `json:"v"`        // version of this shape, 1
	Sent     int           `json:"sent"`     // messages that the broker stored
	Received int           `json:"received"` // deliveries to peers, each with a verified sender
	Missed   int           `json:"missed"`   // of these, given later to one that was away
	Denied   int           `json:"denied"`   // attempts that the broker refused
	Tried    int           `json:"tried"`    // attempts that it had to refuse
	Took     string        `json:"took"`     // who took the job
	Duration time.Duration `json:"durationNs"`
}

// String is the one-line summary.
func (s Summary) String() string {
	return fmt.Sprintf("proved in %s: %d messages sent, %d received from verified senders, %d of them by one that had been away, job taken by exactly one reviewer (%s), %d of %d denied attempts refused",
		s.Duration.Round(time.Millisecond), s.Sent, s.Received, s.Missed, s.Took, s.Denied, s.Tried)
}

const (
	spaceName = "demo"
	channel   = "general"
	role      = "reviewer"
)

// Run plays the scene and calls show for each line as it happens, one at a time. It uses no network and leaves
// nothing behind. It fails when anything did not happen as it must.
func Run(ctx context.Context, show func(Line)) (sum Summary, err error) {
	dir, err := os.MkdirTemp("", "cotal-demo-")
	if err != nil {
		return sum, fmt.Errorf("create state folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	node := cotal.New(memstore.New(), &cotal.Options{StateDir: dir, NoListen: true, Transport: broker.Plaintext(), Spaces: []string{spaceName}})
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- node.Run(run) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	select {
	case <-node.Ready():
	case err := <-ended:
		ended <- nil
		return sum, err
	}
	st := &stage{node: node, show: show, began: began, changed: make(chan struct{})}
	defer st.close()
	if err := st.play(ctx); err != nil {
		return sum, err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.sum.V, st.sum.Duration = 1, time.Since(began)
	return st.sum, nil
}

// stage holds the cast and counts what happens.
type stage struct {
	node  *cotal.Node
	show  func(Line)
	began time.Time
	cast  []*peer

	mu      sync.Mutex // guards the fields below, and show
	sum     Summary
	heard   map[string]int            // message id → deliveries
	away    map[string]wire.Principal // message id → who was away when it was sent
	takers  []string
	offline map[string]bool
	changed chan struct{} // closed and replaced on every change
	failed  error
}

// peer is one of the cast.
type peer struct {
	*endpoint.Endpoint
	creds *trust.Credentials
	st    *stage
}

func (st *stage) line(l Line) {
	l.V, l.At = 1, time.Since(st.began)
	st.show(l)
}

func (st *stage) say(what, who, to, text string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.line(Line{What: what, Who: who, To: to, Text: text})
}

// note changes the state under the lock and wakes who waits for it.
func (st *stage) note(change func()) {
	st.mu.Lock()
	defer st.mu.Unlock()
	change()
	close(st.changed)
	st.changed = make(chan struct{})
}

// await returns when ok holds.
func (st *stage) await(ctx context.Context, what string, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		st.mu.Lock()
		done, failed, changed := ok(), st.failed, st.changed
		st.mu.Unlock()
		switch {
		case failed != nil:
			return failed
		case done:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		}
	}
}

// enter issues a credential, connects and joins.
func (st *stage) enter(ctx context.Context, name, serves string) (*peer, error) {
	creds, err := st.node.Authority().Issue(ctx, auth.Request{Space: spaceName, Actor: name, Role: serves, Subscribe: []string{channel}, Publish: []string{channel}})
	if err != nil {
		return nil, err
	}
	return st.come(ctx, creds)
}

// come connects and joins with a credential: for the first time, or again.
func (st *stage) come(ctx context.Context, creds *trust.Credentials) (*peer, error) {
	id := creds.Identity()
	ep, err := endpoint.Connect(ctx, "", endpoint.Static(creds), &endpoint.Options{Name: id.Principal.Actor, InProcess: st.node.InProcess()})
	if err != nil {
		return nil, fmt.Errorf("connect %s: %w", id.Principal, err)
	}
	p := &peer{Endpoint: ep, creds: creds, st: st}
	st.cast = append(st.cast, p)
	if _, err := p.Join(ctx, channel, func(d *endpoint.Delivery) { p.take(ctx, d) }, nil); err != nil {
		return nil, err
	}
	if err := p.HandleDirect(ctx, func(d *endpoint.Delivery) { p.take(ctx, d) }); err != nil {
		return nil, err
	}
	if id.Role == "" {
		return p, nil
	}
	return p, p.HandleRole(ctx, func(d *endpoint.Delivery) { p.work(ctx, d) })
}

// take counts a delivery and prints a message the first time anybody has it.
func (p *peer) take(ctx context.Context, d *endpoint.Delivery) {
	if err := d.Ack(ctx); err != nil {
		p.st.note(func() { p.st.failed = fmt.Errorf("acknowledge message of %s: %w", d.Sender, err) })
		return
	}
	if d.Sender == p.Principal() { // one's own post comes back on the channel; that is no delivery to a peer
		return
	}
	p.st.note(func() {
		st := p.st
		st.sum.Received++
		if st.heard == nil {
			st.heard = map[string]int{}
		}
		st.heard[d.Message.ID]++
		if st.away[d.Message.ID] == p.Principal() {
			st.sum.Missed++
			st.line(Line{What: "missed", Who: d.Sender.String(), To: p.Principal().String(), Text: d.Message.Text()})
			return
		}
		if st.heard[d.Message.ID] > 1 {
			return
		}
		switch d.Kind {
		case wire.KindDirect:
			st.line(Line{What: "direct", Who: d.Sender.String(), To: p.Principal().String(), Text: d.Message.Text()})
		default:
			st.line(Line{What: "channel", Who: d.Sender.String(), To: "#" + d.Channel, Text: d.Message.Text()})
		}
	})
}

// work takes a job of the role and answers its sender.
func (p *peer) work(ctx context.Context, d *endpoint.Delivery) {
	p.st.note(func() {
		p.st.sum.Received++
		p.st.takers = append(p.st.takers, p.Principal().Actor)
		p.st.line(Line{What: "role", Who: d.Sender.String(), To: "@" + d.Role, Text: d.Message.Text() + "  (taken by " + p.Principal().Actor + ")"})
	})
	err := d.Ack(ctx)
	if err == nil {
		err = p.direct(ctx, d.Sender, "reviewed: change 42 looks good")
	}
	if err != nil {
		p.st.note(func() { p.st.failed = fmt.Errorf("answer job: %w", err) })
	}
}

func (p *peer) post(ctx context.Context, text string, listeners int) error {
	r, err := p.Post(ctx, channel, endpoint.Draft{Parts: []wire.Part{wire.Text(text)}})
	if err != nil {
		return fmt.Errorf("post as %s: %w", p.Principal(), err)
	}
	p.st.note(func() { p.st.sum.Sent++ })
	return p.st.await(ctx, "delivery of a post", func() bool { return p.st.heard[r.ID] == listeners })
}

func (p *peer) direct(ctx context.Context, to wire.Principal, text string) error {
	if _, err := p.Direct(ctx, to, endpoint.Draft{Parts: []wire.Part{wire.Text(text)}}); err != nil {
		return fmt.Errorf("send to %s: %w", to, err)
	}
	p.st.note(func() { p.st.sum.Sent++ })
	return nil
}

func (st *stage) close() {
	for _, p := range st.cast {
		_ = p.Close()
	}
}
