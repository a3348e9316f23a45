package bench

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Options shapes a run. The zero value measures everything.
type Options struct {
	// Rounds of each body. Default 5.
	Rounds int
	// Scale multiplies the number of operations. Default 1.
	Scale float64
	// Only names the cases to run, by prefix. Empty runs all.
	Only []string
	// Executable is a cotal binary for the figures of a whole process; empty leaves them out.
	Executable string
	// Progress is told what is being measured. May be nil.
	Progress func(string)
}

// Result is one figure of ours beside raw NATS.
type Result struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Ours   []float64 `json:"ours"` // one a round
	Raw    []float64 `json:"raw,omitempty"`
	Ratio  float64   `json:"ratio,omitempty"`  // medians, ours to raw, so that more is better
	Target string    `json:"target,omitempty"` // what we set out for
	Met    *bool     `json:"met,omitempty"`
}

// Report is what a run measured.
type Report struct {
	V       int       `json:"v"` // version of this shape, 1
	When    time.Time `json:"when"`
	System  string    `json:"system"`
	CPUs    int       `json:"cpus"`
	Go      string    `json:"go"`
	Rounds  int       `json:"rounds"`
	Load    []string  `json:"load"` // of the machine, 1 min, before and after; empty where it is not known
	Results []Result  `json:"results"`
}

// measure runs one body once and returns its figures, in the order of the case's series.
type measure func(ctx context.Context) ([]float64, error)

// series is one figure of a case.
type series struct {
	name, unit          string
	smaller             bool    // less is better
	ratioAtLeast, limit float64 // targets, 0 for none: ratio at least, ours below
	floor               float64 // target, 0 for none: ours at least
}

// pair is one case: two bodies over what its setup made.
type pair struct {
	name   string
	series []series
	rounds int // 0: as asked
	// program says that it needs Options.Executable, and a terminal.
	program bool
	setup   func(ctx context.Context, l *lab) (ours, raw measure, cleanup func(), err error)
}

// Run measures. It boots its own brokers on loopback in a temporary folder and stops them.
func Run(ctx context.Context, opts *Options) (rep Report, err error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Rounds == 0 {
		o.Rounds = 5
	}
	if o.Scale == 0 {
		o.Scale = 1
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	rep = Report{V: 1, When: time.Now().UTC(), System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version(), Rounds: o.Rounds, Load: load(nil)}
	l, err := newLab(ctx, o)
	if err != nil {
		return rep, err
	}
	defer l.close()
	for _, p := range pairs() {
		if !wanted(o.Only, p.name) || p.program && (o.Executable == "" || runtime.GOOS == "windows") {
			continue
		}
		res, err := l.run(ctx, p)
		if err != nil {
			return rep, fmt.Errorf("measure %s: %w", p.name, err)
		}
		rep.Results = append(rep.Results, res...)
	}
	if o.Executable != "" && wanted(o.Only, "process") {
		res, err := l.process(ctx)
		if err != nil {
			return rep, fmt.Errorf("measure process: %w", err)
		}
		rep.Results = append(rep.Results, res...)
	}
	if o.Executable != "" && wanted(o.Only, "idle") {
		res, err := l.idle(ctx)
		if err != nil {
			return rep, fmt.Errorf("measure idle members: %w", err)
		}
		rep.Results = append(rep.Results, res)
	}
	for _, c := range []struct {
		name    string
		measure func(context.Context) ([]Result, error)
	}{{"spawn", l.spawn}, {"agents-idle", l.idleSeats}} {
		if o.Executable == "" || !wanted(o.Only, c.name) {
			continue
		}
		res, err := c.measure(ctx)
		if err != nil {
			return rep, fmt.Errorf("measure %s: %w", c.name, err)
		}
		rep.Results = append(rep.Results, res...)
	}
	rep.Load = load(rep.Load)
	return rep, nil
}

func wanted(only []string, name string) bool {
	return len(only) == 0 || slices.ContainsFunc(only, func(o string) bool { return strings.HasPrefix(name, o) })
}

// CheckNames refuses names that no measurement begins with.
func CheckNames(only []string) error {
	names := []string{"process", "idle", "spawn", "agents-idle"}
	for _, p := range pairs() {
		names = append(names, p.name)
	}
	for _, o := range only {
		if o == "" || !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, o) }) {
			return fmt.Errorf("nothing is called %q; there is %s", o, strings.Join(names, ", "))
		}
	}
	return nil
}

func pairs() []pair {
	return []pair{posts(1), posts(10), posts(100), fanOut(100), catchUp(), backlog(), storedBytes(1), storedBytes(10), storedBytes(100), rosterTraffic(10), rosterTraffic(200), directs(), roles(), requests(false), requests(true), connects(), stores(false), stores(true),
		served(), exchanges(), callouts(), storm(), revocations(), grantees(), echoes(), attaches()}
}

// run alternates the bodies, after one round of each that is not counted.
func (l *lab) run(ctx context.Context, p pair) ([]Result, error) {
	ours, raw, cleanup, err := p.setup(ctx, l)
	if err != nil {
		return nil, err
	}
	defer cleanup()
	out := make([]Result, len(p.series))
	rounds, first := l.opts.Rounds, 0
	if p.rounds > 0 {
		rounds, first = p.rounds, 1 // nothing to warm up
	}
	for round := first; round <= rounds; round++ {
		l.opts.Progress(fmt.Sprintf("%s: round %d of %d", p.name, round, rounds))
		a, err := ours(ctx)
		if err != nil {
			return nil, fmt.Errorf("ours: %w", err)
		}
		var b []float64
		if raw != nil {
			if b, err = raw(ctx); err != nil {
				return nil, fmt.Errorf("raw: %w", err)
			}
		}
		for i := range out {
			if round == 0 {
				continue
			}
			if out[i].Ours = append(out[i].Ours, a[i]); raw != nil {
				out[i].Raw = append(out[i].Raw, b[i])
			}
		}
	}
	for i, s := range p.series {
		out[i].Name, out[i].Unit = p.name+" "+s.name, s.unit
		out[i].settle(s)
	}
	return out, nil
}

// settle computes the ratio and compares with the target.
func (r *Result) settle(s series) {
	ours, raw := Median(r.Ours), Median(r.Raw)
	if len(r.Raw) > 0 && ours > 0 && raw > 0 {
		r.Ratio = ours / raw
		if s.smaller {
			r.Ratio = raw / ours
		}
	}
	met := true
	switch {
	case s.ratioAtLeast > 0:
		r.Target = fmt.Sprintf("ratio ≥ %.2f", s.ratioAtLeast)
		met = r.Ratio >= s.ratioAtLeast
	case s.limit > 0:
		r.Target = fmt.Sprintf("< %g %s", s.limit, s.unit)
		met = ours < s.limit
	case s.floor > 0:
		r.Target = fmt.Sprintf("≥ %g %s", s.floor, s.unit)
		met = ours >= s.floor
	default:
		return
	}
	r.Met = &met
}

// Median of the rounds; 0 without any.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// quantile q of durations, in microseconds.
func quantile(d []time.Duration, q float64) float64 {
	s := slices.Sorted(slices.Values(d))
	return float64(s[min(len(s)-1, int(q*float64(len(s))))]) / float64(time.Microsecond)
}

func load(before []string) []string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return before
	}
	return append(before, strings.Fields(string(b))[0])
}
