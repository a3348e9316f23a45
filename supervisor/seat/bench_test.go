//go:build linux || darwin

package seat_test

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/cotal-go/cotal/supervisor/seat"
)

// report gives the median and the 99th percentile beside the mean.
func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkEcho times a keystroke until its echo is there: on a bare pseudo-terminal, and through a seat's socket to a viewer.
func BenchmarkEcho(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		cmd := exec.Command("cat")
		f, err := pty.Start(cmd)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = f.Close(); _ = cmd.Wait() }()
		if _, err := term.MakeRaw(int(f.Fd())); err != nil {
			b.Fatal(err)
		}
		buf, took := make([]byte, 64), []time.Duration{}
		for b.Loop() {
			begun := time.Now()
			if _, err := f.Write([]byte("x")); err != nil {
				b.Fatal(err)
			}
			if _, err := f.Read(buf); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(begun))
		}
		report(b, took)
	})
	b.Run("seat", func(b *testing.B) {
		c := start(b, options(b, "sh", "-c", "stty raw -echo; echo ready; exec cat"))
		v, err := c.View(within(b), seat.ViewOptions{})
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = v.Close() }()
		shows(b, c, "ready")
		e := &eye{view: v, screen: term1()}
		e.settled()
		ctx, took := b.Context(), []time.Duration{}
		for b.Loop() {
			begun := time.Now()
			if err := c.Input(ctx, []byte("x")); err != nil {
				b.Fatal(err)
			}
			if _, err := v.Next(ctx); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(begun))
		}
		report(b, took)
	})
}

// BenchmarkStart times Start until the seat answers, and reports that apart from the whole with the end of the agent and the seat. Set
// COTAL_BENCH to the path of a built cotal to time that.
func BenchmarkStart(b *testing.B) {
	var took []time.Duration
	for b.Loop() {
		o := options(b, "true")
		if p := os.Getenv("COTAL_BENCH"); p != "" {
			o.Program = p
		}
		begun := time.Now()
		c, err := seat.Start(b.Context(), o)
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begun))
		<-c.Done()
		if err := c.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
		_ = c.Close()
	}
	report(b, took)
}
