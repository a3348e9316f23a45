package supervisor

import (
	"fmt"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// The restart modes.
const (
	RestartNever     = "never"      // an end is an end
	RestartOnFailure = "on-failure" // after a non-zero exit, a signal, or an end that nobody saw
	RestartAlways    = "always"     // after every end that was not asked for
)

// Policy decides what follows when a process has ended without being asked to. The zero value never restarts; [DefaultPolicy] is what
// agents get. It is a value and does nothing by itself.
type Policy struct {
	// Mode is one of the restart modes; another one is RestartNever.
	Mode string `json:"mode"`
	// Min is the first wait, which doubles with each end in Window up to Max.
	Min time.Duration `json:"min"`
	Max time.Duration `json:"max"`
	// Ends within Window are what is too often: the last of them is not followed by a start.
	Ends   int           `json:"ends"`
	Window time.Duration `json:"window"`
	// Good is how long a run lasts that makes the earlier ends forgotten.
	Good time.Duration `json:"good"`
}

// DefaultPolicy returns the policy of a mode: waits from 1 s to 60 s, the fifth end within 2 minutes is the last, and a run of a minute
// makes good for those before.
func DefaultPolicy(mode string) Policy {
	return Policy{Mode: mode, Min: time.Second, Max: time.Minute, Ends: 5, Window: 2 * time.Minute, Good: time.Minute}
}

// Ending is how a process ended.
type Ending struct {
	// Code is the exit code; 0 with a Signal.
	Code int `json:"code,omitempty"`
	// Signal is such as SIGKILL; empty for an exit.
	Signal string `json:"signal,omitempty"`
	// Lost says that nobody saw it end.
	Lost bool `json:"lost,omitempty"`
}

// Failed reports whether it was anything else than an exit with code 0.
func (e Ending) Failed() bool { return e.Lost || e.Signal != "" || e.Code != 0 }

// String says it in words, such as "exit code 3".
func (e Ending) String() string {
	switch {
	case e.Lost:
		return "lost: its seat is gone, and nobody saw it end"
	case e.Signal != "":
		return "ended by " + e.Signal
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

// Decision is what follows an end.
type Decision struct {
	// Again says to start after Wait; otherwise State is where it stays, wire.AgentExited or wire.AgentFailed.
	Again bool
	Wait  time.Duration
	State string
	// Reason is for a person.
	Reason string
	// Ends are those to remember, this one included.
	Ends []time.Time
}

// Decide says what follows an end at now of a run that began at began, zero for one that did not begin. Before are the ends that
// were remembered.
func (p Policy) Decide(before []time.Time, began time.Time, how Ending, now time.Time) Decision {
	var ends []time.Time
	if began.IsZero() || now.Sub(began) < p.Good {
		for _, at := range before {
			if now.Sub(at) < p.Window {
				ends = append(ends, at)
			}
		}
	}
	d := Decision{Ends: append(ends, now), Reason: how.String()}
	switch {
	case p.Mode == RestartAlways, p.Mode == RestartOnFailure && how.Failed():
	case how.Failed():
		d.State = wire.AgentFailed
		return d
	default:
		d.State = wire.AgentExited
		return d
	}
	if len(d.Ends) >= p.Ends {
		d.State = wire.AgentFailed
		d.Reason = fmt.Sprintf("%s; %d ends within %v, not started again", how, len(d.Ends), p.Window)
		return d
	}
	d.Again, d.Wait = true, p.Max
	if n := len(d.Ends) - 1; n < 30 {
		d.Wait = min(p.Min<<n, p.Max)
	}
	return d
}
