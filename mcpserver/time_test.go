package mcpserver_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/mcpserver"
	"github.com/cotal-go/cotal/wire"
)

// A message that nobody reads for three hours is not handed out again meanwhile, is no dead letter, and is read then.
func TestMessageWaitsForHours(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		bob := m.Endpoint(t, "bob", &cotaltest.Peer{})
		ada := newAgent(t, m, "ada", setup{peer: cotaltest.Peer{Role: "reviewer"}})
		sent := direct(t, bob, ada.ep, endpoint.Text("read me"))
		if _, err := bob.Ask(t.Context(), "reviewer", endpoint.Text("do it")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Hour)
		text := ada.call(t, "cotal_inbox", nil)
		if !strings.Contains(text, "| read me\n") || !strings.Contains(text, "| do it\n") || strings.Contains(text, "handed out before") {
			t.Errorf("after three hours:\n%s", text)
		}
		ada.call(t, "cotal_inbox", args{"ack": pageOf(text)})
		synctest.Wait()
		r, err := bob.Receipt(t.Context(), wire.ReceiptRequest{ID: sent.ID})
		if err != nil || r.Recipients[0].Stage != wire.StageHandled || r.Recipients[0].Attempts > 1 {
			t.Errorf("receipt %+v, %v; want handled at the first attempt", r, err)
		}
	})
}

// After a crash a direct message that a page showed comes again when the broker's wait for its acknowledgement is over.
func TestCrashedDirectMessageComesAgain(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		bob := m.Endpoint(t, "bob", nil)
		ada := newAgent(t, m, "ada", setup{})
		direct(t, bob, ada.ep, endpoint.Text("acknowledged"))
		ada.call(t, "cotal_inbox", args{"ack": pageOf(ada.has(t, "acknowledged"))})
		direct(t, bob, ada.ep, endpoint.Text("only shown"))
		ada.has(t, "only shown")
		ada.kill()
		next := newAgent(t, m, "ada", setup{creds: ada.creds})
		time.Sleep(2 * time.Minute)
		text := next.call(t, "cotal_inbox", nil)
		if !strings.Contains(text, "| only shown\n") || !strings.Contains(text, "handed out before") || strings.Contains(text, "| acknowledged\n") {
			t.Errorf("after the crash:\n%s", text)
		}
	})
}

// What is not read wakes again, ever more rarely, and not for ever; what is new wakes at once.
func TestRewakes(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		bob := m.Endpoint(t, "bob", nil)
		var mu sync.Mutex // guards the three below
		var at []time.Duration
		busy, begun := false, time.Now()
		look := func(isBusy bool) (woken []time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			woken, at, begun, busy = at, nil, time.Now(), isBusy
			return woken
		}
		ada := newAgent(t, m, "ada", setup{opts: mcpserver.Options{Wake: func(context.Context, string) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			if !busy {
				at = append(at, time.Since(begun).Round(time.Minute))
			}
			return !busy, nil
		}}})
		direct(t, bob, ada.ep, endpoint.Text("read me"))
		time.Sleep(6 * time.Hour)
		synctest.Wait()
		if at := look(true); len(at) != 6 || at[0] != 0 || at[1] != time.Minute || at[5] < 20*time.Minute || at[5] > time.Hour {
			t.Errorf("woken at %v", at)
		}
		direct(t, bob, ada.ep, endpoint.Text("read me too"))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if at := look(false); len(at) != 0 {
			t.Errorf("woken while busy, at %v", at)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(look(false)) == 0 {
			t.Error("not woken once the terminal was quiet")
		}
	})
}

// What a hook was given for the next turn wakes nobody beside it, and does when the hook never says that it was written.
func TestHookThatDiedWakes(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		bob := m.Endpoint(t, "bob", nil)
		woken := make(chan time.Time, 10)
		ada := newAgent(t, m, "ada", setup{opts: mcpserver.Options{Wake: func(context.Context, string) (bool, error) {
			woken <- time.Now()
			return true, nil
		}}})
		ada.s.HostEvent(t.Context(), mcpserver.EventPrompt)
		direct(t, bob, ada.ep, endpoint.Text("look at this"))
		ada.has(t, "look at this")
		if ada.s.HostEvent(t.Context(), mcpserver.EventStop) == "" {
			t.Fatal("the end of the turn begins no other")
		}
		given := time.Now()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		select {
		case at := <-woken:
			if d := at.Sub(given); d < 5*time.Second || d > 6*time.Second {
				t.Errorf("woken after %v", d)
			}
		default:
			t.Error("not woken")
		}
	})
}

// TestM11WaitingTellsProgress: a client that waits long hears that the wait goes on, and is answered at its end.
func TestM11WaitingTellsProgress(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		told := 0
		ada := newAgent(t, m, "ada", setup{client: &mcp.ClientOptions{
			ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { told++ },
		}})
		m.Credentials(t, "bob", nil)
		p := &mcp.CallToolParams{Name: "cotal_ask", Arguments: args{"to": "local.bob", "text": "?", "wait_seconds": 120}}
		p.SetProgressToken("x")
		r, err := ada.CallTool(t.Context(), p)
		if err != nil || r.IsError || !strings.Contains(textOf(r), "no answer within 120 s") {
			t.Errorf("ask = %v, %v", r, err)
		}
		synctest.Wait()
		if told < 10 || told > 12 {
			t.Errorf("told %d times in two minutes", told)
		}
	})
}

// An agent that is started is waited for as long as the call says, which may be not at all.
func TestSpawnWaitsAsLongAsItIsTold(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		slowSupervisor(t, m)
		ada := newAgent(t, m, "ada", setup{peer: cotaltest.Peer{Request: spawner()}})
		for _, tt := range []struct {
			in   args
			want time.Duration
		}{{args{"wait_seconds": 0}, 0}, {args{}, 30 * time.Second}, {args{"wait_seconds": nil}, 30 * time.Second}, {args{"wait_seconds": 120}, 2 * time.Minute}} {
			tt.in["persona"] = "helper"
			begun := time.Now()
			r, err := ada.CallTool(t.Context(), &mcp.CallToolParams{Name: "cotal_spawn", Arguments: tt.in})
			if err != nil {
				t.Fatal(err)
			}
			if got := time.Since(begun); got < tt.want || got > tt.want+time.Second || r.IsError || !strings.Contains(textOf(r), "It is still starting") {
				t.Errorf("spawn %v took %v, want %v:\n%s", tt.in, got, tt.want, textOf(r))
			}
		}
		for _, wait := range []int{-1, 301} {
			ada.refuse(t, "bad-request", "cotal_spawn", args{"persona": "helper", "wait_seconds": wait})
		}
	})
}

// slowSupervisor answers for one whose agents never get ready.
func slowSupervisor(t *testing.T, m *cotaltest.Mesh) {
	creds, err := m.Node().Authority().SupervisorCredential(t.Context(), m.Space(), "m1", 0)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := dial.Connect(t.Context(), dial.Options{InProcess: m.InProcess(), Creds: creds})
	if err != nil {
		t.Fatal(err)
	}
	s := control.New(wire.ManagerEndpoint, &control.Options{Instance: "m1"})
	modes := []wire.Mode{wire.ModeNone, wire.ModeAny}
	control.Handle(s, control.Command{Name: wire.CommandAgents, Effect: control.Read, Modes: modes}, func(context.Context, *control.Request, wire.AgentsRequest) (wire.AgentsReply, error) {
		return wire.AgentsReply{Instance: "m1", Host: "h1", Agents: []wire.AgentStatus{}, Peers: []wire.ManagerPeer{{Instance: "m1", Host: "h1", Heard: time.Now().UnixMilli()}}}, nil
	})
	control.Handle(s, control.Command{Name: wire.CommandSpawn, Effect: control.Write, Modes: modes}, func(_ context.Context, _ *control.Request, in wire.SpawnRequest) (wire.SpawnReply, error) {
		return wire.SpawnReply{Agent: wire.AgentStatus{Principal: "local.kid", Name: "kid", UID: wire.NewUID(), Instance: "m1", RequestID: in.RequestID, State: wire.AgentStarting}}, nil
	})
	control.Handle(s, control.Command{Name: wire.CommandAwait, Effect: control.Read, Modes: modes}, func(ctx context.Context, _ *control.Request, _ wire.AwaitRequest) (wire.AgentStatus, error) {
		<-ctx.Done()
		return wire.AgentStatus{}, ctx.Err()
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx, conn, m.Space()); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	<-s.Ready()
	t.Cleanup(func() { cancel(); wg.Wait(); conn.Close() })
}
