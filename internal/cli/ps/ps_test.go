package ps_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/ps"
	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/wire"
)

func ago(d time.Duration) int64 { return time.Now().Add(-d).UnixMilli() }

func census() manager.Census {
	return manager.Census{
		Replies: []wire.AgentsReply{
			{Instance: "m1", Host: "alpha", Agents: []wire.AgentStatus{
				{
					Principal: "local.nova", Name: "nova", Connector: "claude", Model: "opus", State: wire.AgentReady, Since: ago(time.Hour),
					Process: wire.AgentProcess{State: wire.ProcessRunning, PID: 12, Started: ago(5 * time.Minute), Restarts: 2},
					Mesh:    wire.AgentMesh{Status: wire.StatusWorking, Activity: "the \x1b[31mtests"},
				},
				{
					Principal: "u_aaaaaaaaaaaaaaaaaaaaaaaaaa.kid", Name: "kid", Connector: "script", State: wire.AgentBackoff, Since: ago(3 * time.Second), Reason: "it ended",
					Parent: "local.nova", Process: wire.AgentProcess{State: wire.ProcessExited, Signal: "SIGKILL", LastLines: []string{"", "out of \x1bpaper", ""}},
					Mesh: wire.AgentMesh{Status: wire.StatusOffline},
				},
			}},
			{Instance: "m2", Host: "beta"},
		},
		Refused: []manager.Refusal{{ManagerPeer: wire.ManagerPeer{Instance: "m4", Host: "delta"}, Err: wire.Errorf(wire.CodePermissionDenied, "not for \x1byou")}},
		Silent:  []wire.ManagerPeer{{Instance: "m3", Host: "gamma", Agents: 1, Heard: ago(90 * time.Second)}},
	}
}

func TestRender(t *testing.T) {
	var out bytes.Buffer
	e := &command.Env{Stdout: &out, Getenv: func(string) string { return "" }}
	if err := ps.Render(e, census(), false); err != nil {
		t.Fatal(err)
	}
	want := strings.TrimPrefix(`
supervisor m1 on alpha
name                            agent   state               process                               mesh                     age  parent
nova                            claude  ready               running, pid 12, started again 2×     working: the \x1b[31mtests  5m   -
u_aaaaaaaaaaaaaaaaaaaaaaaaaa.kid  script  backoff (it ended)  ended by SIGKILL                      offline                  3s   nova

supervisor m2 on beta
no agents

supervisor m4 on delta refuses to tell: not for \x1byou

supervisor m3 on gamma does not answer, last heard 1m ago; it kept 1 agent then
`, "\n")
	squeeze := func(s string) string {
		lines := strings.Split(s, "\n")
		for i, l := range lines {
			lines[i] = strings.Join(strings.Fields(l), " ")
		}
		return strings.Join(lines, "\n")
	}
	if diff := cmp.Diff(squeeze(want), squeeze(out.String())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	out.Reset()
	if err := ps.Render(e, census(), true); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "opus") || !strings.Contains(got, "  its last output:\n  │ out of \\x1bpaper\n") || strings.Contains(got, "\x1b") {
		t.Errorf("wide: %q", got)
	}
}

func TestNarrow(t *testing.T) {
	for on, want := range map[string]int{"m1": 1, "alpha": 1, "gamma": 1, "m3": 1, "delta": 1} {
		got, err := ps.Narrow(census(), on)
		if err != nil || len(got.Replies)+len(got.Refused)+len(got.Silent) != want {
			t.Errorf("on %q: %v, %v", on, got, err)
		}
	}
	if _, err := ps.Narrow(census(), "epsilon"); wire.CodeOf(err) != wire.CodeUnavailable {
		t.Errorf("one that nobody names while one is silent: %v, want unavailable", err)
	}
	all := census()
	all.Refused, all.Silent = nil, nil
	if _, err := ps.Narrow(all, "epsilon"); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("one that nobody names: %v, want not-found", err)
	}
}
