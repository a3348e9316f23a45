package delivery_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// everyCommand tries all that a member can ask about a pattern.
func everyCommand(t testing.TB, u *member, pattern string) map[string]error {
	t.Helper()
	out := map[string]error{}
	call := func(command string, args any) {
		var ignored map[string]any
		out[command] = u.Call(ctxFor(t), control.Target{Endpoint: wire.DeliveryEndpoint, Command: command}, args, &ignored)
	}
	call(wire.CommandJoin, wire.JoinRequest{Pattern: pattern})
	call(wire.CommandPull, wire.PullRequest{Pattern: pattern})
	call(wire.CommandAck, wire.AckRequest{Pattern: pattern, Generation: 1})
	call(wire.CommandLeave, wire.LeaveRequest{Pattern: pattern})
	call(wire.CommandMemberships, wire.MembershipsRequest{})
	return out
}

func TestLifeWithoutAGrantThatStandsHasNothing(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	expired := time.Now().Add(-time.Minute)
	for name, change := range map[string]func(*trust.Grant){
		"retired":  func(g *trust.Grant) { g.State = trust.GrantRetired },
		"expired":  func(g *trust.Grant) { g.ExpiresAt = &expired },
		"reissued": func(g *trust.Grant) { g.UID = wire.NewUID() },
	} {
		t.Run(name, func(t *testing.T) {
			l := lifecycle(name)
			g, rev := m.grant(t, l, ">")
			u := &member{m.caller(t, l), m, l}
			u.join(t, "general")
			m.post(t, poster(), "general", "x")
			change(&g)
			if _, err := m.grants.Update(ctxFor(t), g, rev); err != nil {
				t.Fatal(err)
			}
			for command, err := range everyCommand(t, u, "general") {
				refused(t, command, err, wire.ErrPermissionDenied)
				e, _ := errors.AsType[*wire.Error](err)
				for _, key := range []string{"subject", "principal", "missing", "ask"} {
					if e == nil || e.Details[key] == nil {
						t.Errorf("%s: refusal lacks %q: %v", command, key, e)
					}
				}
			}
			if name == "reissued" {
				// The next life of the name finds nothing of the one before.
				next := &member{m.caller(t, g.Lifecycle()), m, g.Lifecycle()}
				_, err := try[wire.PullReply](t, next.Caller, wire.CommandPull, wire.PullRequest{Pattern: "general"})
				refused(t, "pull of the next life", err, wire.ErrNotFound)
			}
		})
	}
}

func TestNobodyReachesTheMembershipOfAnother(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada, bob := m.participant(t, "ada", ">"), m.participant(t, "bob", ">")
	gen := ada.join(t, "general").Generation
	seq := m.post(t, poster(), "general", "x")
	for command, err := range map[string]error{
		wire.CommandPull: func() error {
			_, err := try[wire.PullReply](t, bob.Caller, wire.CommandPull, wire.PullRequest{Pattern: "general"})
			return err
		}(),
		wire.CommandAck: func() error {
			_, err := try[wire.AckReply](t, bob.Caller, wire.CommandAck, wire.AckRequest{Pattern: "general", Generation: gen, Floor: seq})
			return err
		}(),
		wire.CommandLeave: func() error {
			_, err := try[wire.LeaveReply](t, bob.Caller, wire.CommandLeave, wire.LeaveRequest{Pattern: "general"})
			return err
		}(),
	} {
		refused(t, command, err, wire.ErrNotFound)
	}
	if page := ada.pull(t, wire.PullRequest{Pattern: "general"}); len(page.Messages) != 1 {
		t.Errorf("pull = %+v, want the message", page)
	}
}

func TestWhoMayNoLongerReadMayStillLeaveAndAck(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	l := lifecycle("ada")
	g, rev := m.grant(t, l, ">")
	ada := &member{m.caller(t, l), m, l}
	gen := ada.join(t, "general").Generation
	seq := m.post(t, poster(), "general", "x")
	g.AllowSubscribe = []string{"other"}
	if _, err := m.grants.Update(context.WithoutCancel(ctxFor(t)), g, rev); err != nil {
		t.Fatal(err)
	}
	_, err := try[wire.PullReply](t, ada.Caller, wire.CommandPull, wire.PullRequest{Pattern: "general"})
	refused(t, "pull", err, wire.ErrPermissionDenied)
	ada.ack(t, "general", gen, seq)
	ada.leave(t, wire.LeaveRequest{Pattern: "general"})
}

// What delivery's own credential permits is enough for all that members ask.
func TestMembersWithRealCredentials(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	ada := m.Endpoint(t, "ada", &cotaltest.Peer{Subscribe: []string{"team.>"}})
	boss := m.Endpoint(t, "boss", &cotaltest.Peer{Request: &auth.Request{Profile: trust.Operator, Subscribe: []string{">"}, Publish: []string{">"}}})
	ctx := ctxFor(t)
	call := func(e *endpoint.Endpoint, command string, args, out any) {
		t.Helper()
		if err := e.Call(ctx, control.Target{Endpoint: wire.DeliveryEndpoint, Command: command}, args, out); err != nil {
			t.Fatalf("%s %+v: %v", command, args, err)
		}
	}
	set := wire.ChannelSetRequest{Channel: "team.a", Config: &wire.ChannelConfig{DeliveryClass: string(wire.ClassDurable)}}
	call(boss, wire.CommandChannelSet, set, nil)
	var joined wire.JoinReply
	call(ada, wire.CommandJoin, wire.JoinRequest{Pattern: "team.*"}, &joined)
	if !joined.Durable || joined.Generation == 0 {
		t.Errorf("join = %+v", joined)
	}
	if _, err := boss.Post(ctx, "team.a", endpoint.Draft{Parts: []wire.Part{wire.Text("hello")}}); err != nil {
		t.Fatal(err)
	}
	var page wire.PullReply
	call(ada, wire.CommandPull, wire.PullRequest{Pattern: "team.*"}, &page)
	if len(page.Messages) != 1 || page.Messages[0].Sender != "local.boss" {
		t.Errorf("pull = %+v", page)
	}
	call(ada, wire.CommandPull, wire.PullRequest{Mentions: true}, &wire.PullReply{})
	call(ada, wire.CommandAck, wire.AckRequest{Mentions: true}, nil)
	call(ada, wire.CommandAck, wire.AckRequest{Pattern: "team.*", Generation: joined.Generation, Handled: ranges(page.Through, page.Through)}, nil)
	var members wire.MembershipsReply
	call(boss, wire.CommandMemberships, nil, &members)
	durable := 0
	for _, info := range members.Members {
		durable += len(info.Durable)
	}
	if durable != 1 {
		t.Errorf("memberships = %+v, want that of ada", members)
	}
	call(ada, wire.CommandLeave, wire.LeaveRequest{Pattern: "team.*", Discard: true}, nil)
}
