package supervisor_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/supervisor/relay"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// blank is a terminal that shows nothing and counts what is typed.
type blank struct{ typed *atomic.Int64 }

func (b blank) View(context.Context) (relay.View, error) { return &blankView{}, nil }

func (b blank) Input(_ context.Context, data []byte) error {
	b.typed.Add(int64(len(data)))
	return nil
}

func (b blank) Resize(context.Context, int, int) error           { return nil }
func (b blank) Size(context.Context) (cols, rows int, err error) { return 80, 24, nil }

type blankView struct{ shown bool }

func (v *blankView) Next(ctx context.Context) (relay.Frame, error) {
	if !v.shown {
		v.shown = true
		return relay.Frame{Kind: relay.Snapshot, Cols: 80, Rows: 24}, nil
	}
	<-ctx.Done()
	return relay.Frame{}, ctx.Err()
}

func (v *blankView) Close() error { return nil }

// withTerminals is a mesh with a supervisor whose agents have blank terminals, and what is typed there. The folders are made outside of
// the bubble.
func withTerminals(t *testing.T, dir, state string) (*cotaltest.Mesh, *crew, *atomic.Int64) {
	t.Helper()
	m := cotaltest.New(t, &cotaltest.Options{StateDir: state, DeliveryElsewhere: true})
	w := newCrew(t, m, dir, "one")
	typed := new(atomic.Int64)
	w.th.set(func() { w.th.terminal = blank{typed} })
	w.front(t)
	return m, w, typed
}

// TestSessionEndsWithTheRight: who is revoked, or may not command agents any more, drives no terminal from then on, though it is let in
// again with what is left, and is told why.
func TestSessionEndsWithTheRight(t *testing.T) {
	for name, c := range map[string]struct {
		take func(t *testing.T, a *auth.Authority, req auth.Request) *trust.Credentials
		want wire.Code // that the session ends with
	}{
		"revoked": {func(t *testing.T, a *auth.Authority, req auth.Request) *trust.Credentials {
			if _, err := a.Revoke(t.Context(), req.Space, wire.Principal{Owner: wire.LocalOwner, Actor: req.Actor}); err != nil {
				t.Fatal(err)
			}
			return nil
		}, ""}, // its endpoint says so, and goes on trying
		"narrowed": {func(t *testing.T, a *auth.Authority, req auth.Request) *trust.Credentials {
			req.Capabilities = []string{trust.ScopeRole("reviewer")}
			creds, done, err := a.Renew(t.Context(), req)
			if err != nil || !done.Narrowed {
				t.Fatalf("renew: %+v, %v", done, err)
			}
			return creds
		}, wire.CodePermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			dir, state := t.TempDir(), t.TempDir()
			cotaltest.Bubble(t, func(t *testing.T) {
				m, w, typed := withTerminals(t, dir, state)
				req := auth.Request{Space: m.Space(), Actor: "eve", Capabilities: []string{trust.ScopeSpawn}, Subscribe: []string{"general"}, Publish: []string{"general"}}
				wide, err := m.Node().Authority().Issue(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				var now atomic.Pointer[trust.Credentials]
				now.Store(wide)
				eve := w.connect(t, endpoint.SourceFunc(func(context.Context) (*trust.Credentials, error) { return now.Load(), nil }))
				var a wire.SpawnReply
				if err := eve.Call(t.Context(), target(wire.CommandSpawn, w.k.Instance(), wire.ModeNone), named("ada"), &a); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				var offer wire.AttachReply
				ask := wire.AttachRequest{UID: a.Agent.UID, Drive: true}
				if err := eve.Call(t.Context(), target(wire.CommandAttach, w.k.Instance(), wire.ModeNone), ask, &offer); err != nil {
					t.Fatal(err)
				}
				s, err := eve.Session(t.Context(), offer, nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Input([]byte("x")); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				if typed.Load() != 1 {
					t.Fatalf("%d bytes were typed, want 1", typed.Load())
				}
				if creds := c.take(t, m.Node().Authority(), req); creds != nil {
					now.Store(creds)
				}
				for range 60 {
					time.Sleep(time.Second)
					_ = s.Input([]byte("y"))
				}
				if n := w.k.Sessions(); n != 0 || typed.Load() != 1 {
					t.Errorf("%d sessions are open and %d bytes were typed; want none and no more", n, typed.Load())
				}
				ctx, cancel := contextFor(t, time.Minute)
				defer cancel()
				for err == nil {
					_, err = s.Next(ctx)
				}
				if c.want != "" && wire.CodeOf(err) != c.want {
					t.Errorf("the viewer is told %v, want %s", err, c.want)
				}
			})
		})
	}
}

// TestANarrowedOperatorLosesItsSessions: what an operator opened at an agent that is not its own is out of reach for the same life once
// it may command its own agents alone. The broker refuses the frames, in both directions, whatever the viewer's program does, and the
// viewer is told why.
func TestANarrowedOperatorLosesItsSessions(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	cotaltest.Bubble(t, func(t *testing.T) {
		m, w, typed := withTerminals(t, dir, state)
		var a wire.SpawnReply
		if err := w.asker(t, trust.Operator).Call(t.Context(), target(wire.CommandSpawn, w.k.Instance(), wire.ModeAny), named("ada"), &a); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		req := auth.Request{
			Space: m.Space(), Actor: "eve", Profile: trust.Operator, Subscribe: []string{"general", "team"}, Publish: []string{"general"},
		}
		wide, err := m.Node().Authority().Issue(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		eve := w.connect(t, endpoint.Static(wide))
		offer := func() (o wire.AttachReply) {
			t.Helper()
			ask := wire.AttachRequest{UID: a.Agent.UID, Drive: true}
			if err := eve.Call(t.Context(), target(wire.CommandAttach, w.k.Instance(), wire.ModeAny), ask, &o); err != nil {
				t.Fatal(err)
			}
			return o
		}
		sly := &rawViewer{space: m.Space(), life: eve.Lifecycle(), offer: offer()}
		sly.connect(t, m, wide)
		sly.say(t, wire.ModeAny, wire.SessionFrame{Kind: wire.FrameOpen, Open: &wire.SessionOpen{V: 1, Instance: sly.offer.Instance, UID: a.Agent.UID}})
		sly.say(t, wire.ModeAny, wire.SessionFrame{Kind: wire.FrameInput, Data: []byte("y")})
		time.Sleep(time.Second)
		if typed.Load() != 1 || sly.heard.Load() == 0 {
			t.Fatalf("an operator typed %d bytes and heard %d frames; want 1 and some", typed.Load(), sly.heard.Load())
		}
		open := offer()

		req.Profile, req.Capabilities, req.Subscribe = trust.Agent, []string{trust.ScopeSpawn}, []string{"general"}
		narrow, done, err := m.Node().Authority().Renew(t.Context(), req)
		if err != nil || !done.Narrowed {
			t.Fatalf("renew: %+v, %v", done, err)
		}
		sly.connect(t, m, narrow)
		sly.heard.Store(0)
		for _, mode := range []wire.Mode{wire.ModeAny, wire.ModeOwner, wire.ModeNone} {
			sly.say(t, mode, wire.SessionFrame{Kind: wire.FrameInput, Data: []byte("z")})
			sly.say(t, mode, wire.SessionFrame{Kind: wire.FramePing})
			sly.said -= 2
		}
		time.Sleep(time.Second)
		if want := []string{"pub any", "pub any", "pub owner", "pub owner", "sub any", "sub owner"}; !slices.Equal(sly.refusals(), want) {
			t.Errorf("the broker refused %q, want %q", sly.refusals(), want)
		}
		if typed.Load() != 1 || sly.heard.Load() != 0 {
			t.Errorf("who is no operator any more typed %d bytes and heard %d frames", typed.Load()-1, sly.heard.Load())
		}
		if _, err := w.connect(t, endpoint.Static(narrow)).Session(t.Context(), open, nil); wire.CodeOf(err) != wire.CodePermissionDenied {
			t.Errorf("a viewer that takes the offer then is told %v, want permission-denied", err)
		}
		time.Sleep(relay.Silence + 2*time.Second)
		if n := w.k.Sessions(); n != 0 {
			t.Errorf("%d sessions are open, want none", n)
		}
	})
}

// rawViewer says frames of one session as it likes, in every mode.
type rawViewer struct {
	space wire.Space
	life  wire.Lifecycle
	offer wire.AttachReply
	nc    *nats.Conn
	said  uint64
	heard atomic.Int64

	mu     sync.Mutex // guards denied
	denied []string
}

func (v *rawViewer) subject(t *testing.T, mode wire.Mode, in bool) string {
	t.Helper()
	s, err := wire.SessionSubject{
		Space: v.space, Mode: mode, Endpoint: wire.ManagerEndpoint, Session: v.offer.Session, Epoch: string(v.life.UID), In: in,
	}.Subject()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// connect goes on with a credential, and listens in every mode.
func (v *rawViewer) connect(t *testing.T, m *cotaltest.Mesh, creds *trust.Credentials) {
	t.Helper()
	if v.nc != nil {
		v.nc.Close()
	}
	nc, err := dial.Connect(t.Context(), dial.Options{InProcess: m.InProcess(), Creds: creds, Name: "sly", OnError: func(_ *nats.Conn, err error) {
		verb := "pub"
		if strings.Contains(err.Error(), "Subscription") {
			verb = "sub"
		}
		if subject, ok := control.DeniedSubject(err); ok {
			s, _ := wire.ParseSessionSubject(subject)
			v.mu.Lock()
			defer v.mu.Unlock()
			v.denied = append(v.denied, verb+" "+string(s.Mode))
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	v.nc = nc
	for _, mode := range []wire.Mode{wire.ModeAny, wire.ModeOwner, wire.ModeNone} {
		if _, err := nc.Subscribe(v.subject(t, mode, false), func(*nats.Msg) { v.heard.Add(1) }); err != nil {
			t.Fatal(err)
		}
	}
	_ = nc.Flush() // a refusal comes by itself
}

// say sends the next frame of its only turn.
func (v *rawViewer) say(t *testing.T, mode wire.Mode, f wire.SessionFrame) {
	t.Helper()
	v.said++
	f.Viewer, f.Turn, f.Seq = 1, 1, v.said
	data, err := f.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.nc.Publish(v.subject(t, mode, true), data); err != nil {
		t.Fatal(err)
	}
}

func (v *rawViewer) refusals() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Sorted(slices.Values(v.denied))
}
