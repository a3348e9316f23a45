// Package bench is `cotal bench`: the figures of package internal/bench for a person or a program.
package bench

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/bench"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/view"
)

const benchLong = `
Measures the mesh on this machine beside the same work written directly on nats.go, in one run on one broker: channel
messages stored and received by 1, 10 and 100 members, durable fan-out beside core NATS, catching up, joining with a
backlog, what a post stores, what a watcher of the roster is sent, direct messages, role messages, requests, connects, what
strict mode costs, and whole processes: time to ready, memory at rest, per grant, per endpoint and per idle member, and the terminals of agents: keystroke to echo beside a bare
terminal, attach to first paint. Rounds
of the two alternate; each figure is the median of its rounds, and the ratio compares the medians so that more is better.
The load of the machine before and after stands beside them: on a busy machine believe the ratios, not the figures.

It uses brokers of its own on loopback, in a temporary folder, and touches no mesh that runs. A full run takes about
five minutes.
`

const benchExample = `
  cotal bench
  cotal bench --only channel,direct --rounds 9
  cotal bench --json
`

type run struct {
	rounds int
	scale  float64
	only   []string
}

// New adds `cotal bench`.
func New(t *command.Tree) *cobra.Command {
	r := &run{}
	c := t.Add(command.Spec{Use: "bench [flags]", Short: "Measure this machine beside raw NATS", Long: benchLong, Example: benchExample, Target: command.TargetNone}, r)
	c.Flags().IntVar(&r.rounds, "rounds", 5, "rounds of each measurement, 1 to 99")
	c.Flags().Float64Var(&r.scale, "scale", 1, "how many operations, as a factor, 0.01 to 100")
	c.Flags().StringSliceVar(&r.only, "only", nil, "measure only these, by the start of their name: channel, durable, catch-up, backlog, stored, roster, direct, role, request, connect, store, process, idle, spawn, agents-idle")
	return c
}

// Run measures and prints.
func (r *run) Run(ctx context.Context, e *command.Env) error {
	switch {
	case r.rounds < 1 || r.rounds > 99:
		return command.Usagef("--rounds %d: not 1 to 99", r.rounds)
	case r.scale < 0.01 || r.scale > 100:
		return command.Usagef("--scale %g: not 0.01 to 100", r.scale)
	}
	if err := bench.CheckNames(r.only); err != nil {
		return command.Usagef("--only: %v", err)
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	rep, err := bench.Run(ctx, &bench.Options{Rounds: r.rounds, Scale: r.scale, Only: r.only, Executable: exe, Progress: func(s string) { e.Progress("%s", s) }})
	if err != nil {
		return err
	}
	return e.Print(rep, func(p *command.Printer) { table(p, rep) })
}

func table(p *command.Printer, rep bench.Report) {
	rows := make([][]string, 0, len(rep.Results))
	for _, r := range rep.Results {
		raw, ratio, met := "", "", ""
		if len(r.Raw) > 0 {
			raw, ratio = figure(bench.Median(r.Raw)), fmt.Sprintf("%.2f", r.Ratio)
		}
		if r.Met != nil {
			met = r.Target + ": missed"
			if *r.Met {
				met = r.Target + ": met"
			}
		}
		rows = append(rows, []string{r.Name, figure(bench.Median(r.Ours)), raw, r.Unit, ratio, met})
	}
	p.Table([]string{"MEASURED", "OURS", "RAW NATS", "UNIT", "RATIO", "TARGET"}, rows)
	p.Line("")
	p.Line("%s, %s, %s, %s, medians; load of the machine before and after: %s", rep.System, view.Plural(uint64(rep.CPUs), "CPU"), rep.Go, view.Plural(uint64(rep.Rounds), "round"), strings.Join(rep.Load, ", "))
}

func figure(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
