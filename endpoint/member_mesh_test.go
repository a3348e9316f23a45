package endpoint_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// seat is an endpoint of a whole mesh that joins "team", and its credentials.
type seat struct {
	mesh   *cotaltest.Mesh
	creds  *trust.Credentials
	ep     *endpoint.Endpoint
	m      *endpoint.Membership
	got    *journal[string]
	events *journal[endpoint.Event]
}

func newSeat(t *testing.T, mesh *cotaltest.Mesh, actor string) *seat {
	t.Helper()
	s := &seat{mesh: mesh, creds: mesh.Credentials(t, actor, nil), got: newJournal[string](), events: newJournal[endpoint.Event]()}
	s.connect(t)
	return s
}

func (s *seat) connect(t *testing.T) {
	t.Helper()
	s.ep = s.mesh.Connect(t, s.creds, &cotaltest.Peer{Options: endpoint.Options{OnEvent: s.events.add}})
	s.join(t, nil)
}

func (s *seat) join(t *testing.T, opts *endpoint.JoinOptions) {
	t.Helper()
	s.m = must(s.ep.Join(t.Context(), "team", func(d *endpoint.Delivery) { s.got.add(d.Message.Text()) }, opts))(t)
	if st := s.m.Status(); !st.Established || !st.Durable {
		t.Fatalf("status %+v", st)
	}
}

// numbered checks that the texts are the numbers from 0 on.
func (s *seat) numbered(t *testing.T, n int) {
	t.Helper()
	all := s.got.waitLen(t, n)
	for i, text := range all {
		if text != fmt.Sprint(i) {
			t.Fatalf("message %d is %q", i, text)
		}
	}
	if len(all) != n {
		t.Errorf("%d messages, want %d", len(all), n)
	}
}

// poster posts numbers on "team".
type poster struct {
	t  *testing.T
	ep *endpoint.Endpoint
	n  int
}

func (p *poster) post(n int) {
	p.t.Helper()
	for range n {
		must(p.ep.Post(p.t.Context(), "team", endpoint.Text(fmt.Sprint(p.n))))(p.t)
		must(p.ep.Post(p.t.Context(), "noise", endpoint.Text("x")))(p.t)
		p.n++
	}
}

// TestMemberAcrossEverything stops, crashes, is disconnected and sees its mesh restart: every message is shown, in order,
// and those that were reported once.
func TestMemberAcrossEverything(t *testing.T) {
	mesh := cotaltest.New(t, nil)
	s := newSeat(t, mesh, "carol")
	p := &poster{t: t, ep: mesh.Endpoint(t, "ada", nil)}
	p.post(10)
	s.numbered(t, 10)
	check(t, "stop", s.m.Stop(t.Context()), nil)
	p.post(30)
	s.join(t, nil)
	p.post(10)
	s.numbered(t, 50)
	check(t, "close", s.ep.Close(), nil)
	p.post(1500) // more than a page
	s.connect(t)
	p.post(10)
	s.numbered(t, 1560)
	mesh.Restart(t)
	p.post(10)
	s.numbered(t, 1570)
	check(t, "sync", s.m.Sync(t.Context()), nil)
	if st := s.m.Status(); st.Floor < 2*1570-1 {
		t.Errorf("status %+v", st)
	}
	if n := countEvents[endpoint.EventLoss](s.events) + countEvents[endpoint.EventMembershipEnded](s.events); n > 0 {
		t.Errorf("events %v", s.events.list())
	}
	check(t, "leave", s.m.Leave(t.Context()), nil)
	p.post(5)
	s.join(t, nil)
	s.got.take()
	must(p.ep.Post(t.Context(), "team", endpoint.Text("0")))(t)
	s.numbered(t, 1)
}

// TestMemberRenewsUnderLoad moves a member from connection to connection while others flood it.
func TestMemberRenewsUnderLoad(t *testing.T) {
	mesh := cotaltest.New(t, nil)
	creds := mesh.Credentials(t, "carol", nil)
	events := newJournal[endpoint.Event]()
	ep := mesh.Connect(t, creds, &cotaltest.Peer{Options: endpoint.Options{OnEvent: events.add}})
	const senders, each = 3, 1500
	var mu sync.Mutex
	got, total, all := map[string][]string{}, 0, make(chan struct{})
	must(ep.Join(t.Context(), "team", func(d *endpoint.Delivery) {
		mu.Lock()
		defer mu.Unlock()
		got[d.Sender.Actor] = append(got[d.Sender.Actor], d.Message.Text())
		if total++; total == senders*each {
			close(all)
		}
	}, nil))(t)
	var wg sync.WaitGroup
	for i := range senders {
		from := mesh.Endpoint(t, fmt.Sprint("sender", i), nil)
		wg.Go(func() {
			for n := range each {
				if _, err := from.Post(t.Context(), "team", endpoint.Text(fmt.Sprint(n))); err != nil {
					t.Errorf("post: %v", err)
				}
			}
		})
	}
	var sent atomic.Bool
	go func() { wg.Wait(); sent.Store(true) }()
	moves := 0
	for ; !sent.Load() || moves < 2; moves++ {
		old := ep.LinkClosed()
		next, err := mesh.Node().Authority().Issue(t.Context(), auth.Request{
			Space: mesh.Space(), Actor: "carol", Renew: true, TTL: time.Duration(moves+2) * time.Hour,
		})
		check(t, "issue", err, nil)
		check(t, "renew", ep.Renew(t.Context(), next), nil)
		<-old
	}
	<-all
	mu.Lock()
	defer mu.Unlock()
	for from, texts := range got {
		for i, text := range texts {
			if text != fmt.Sprint(i) {
				t.Fatalf("%s: message %d is %q", from, i, text)
			}
		}
	}
	t.Logf("%d messages over %d moves", total, moves)
	for _, ev := range events.list() {
		switch ev.(type) {
		case endpoint.EventRenewed, endpoint.EventCaughtUp:
		default:
			t.Errorf("event %T %v", ev, ev)
		}
	}
	if total != senders*each {
		t.Errorf("%d messages, want %d", total, senders*each)
	}
}

// TestMemberOfPatternReplays shows what the channels of a pattern hold before what comes.
func TestMemberOfPatternReplays(t *testing.T) {
	mesh := cotaltest.New(t, nil)
	ada, carol := mesh.Endpoint(t, "ada", nil), mesh.Endpoint(t, "carol", nil)
	for i := range 20 {
		for _, ch := range []string{"a.x", "a.y", "b"} {
			must(ada.Post(t.Context(), ch, endpoint.Text(fmt.Sprint(ch, " ", i))))(t)
		}
	}
	got := newJournal[*endpoint.Delivery]()
	must(carol.Join(t.Context(), "a.*", got.add, &endpoint.JoinOptions{Replay: true}))(t)
	must(ada.Post(t.Context(), "a.y", endpoint.Text("new")))(t)
	all := got.waitLen(t, 41)
	count := map[string]int{}
	for i, d := range all {
		count[d.Channel]++
		if d.Replayed != (i < 40) {
			t.Errorf("message %d %q is replayed: %v", i, d.Message.Text(), d.Replayed)
		}
	}
	if len(all) != 41 || count["a.x"] != 20 || count["a.y"] != 21 || all[40].Message.Text() != "new" {
		t.Errorf("shown %s", texts(all))
	}
}

// TestMembershipOfSomebodyRevoked ends when the right to read does.
func TestMembershipOfSomebodyRevoked(t *testing.T) {
	mesh := cotaltest.New(t, nil)
	var now atomic.Pointer[trust.Credentials]
	now.Store(mesh.Credentials(t, "carol", nil))
	got, events := newJournal[string](), newJournal[endpoint.Event]()
	src := endpoint.SourceFunc(func(context.Context) (*trust.Credentials, error) { return now.Load(), nil })
	ep := must(endpoint.Connect(t.Context(), "", src, &endpoint.Options{InProcess: mesh.InProcess(), OnEvent: events.add}))(t)
	defer ep.Close()
	m := must(ep.Join(t.Context(), "team", func(d *endpoint.Delivery) { got.add(d.Message.Text()) }, nil))(t)
	now.Store(must(mesh.Node().Authority().Issue(t.Context(), auth.Request{
		Space: mesh.Space(), Actor: "carol", Renew: true, Subscribe: []string{"other"},
	}))(t))
	must(mesh.Endpoint(t, "ada", nil).Post(t.Context(), "team", endpoint.Text("secret?")))(t)
	wantEvent(t, events, func(ev endpoint.EventMembershipEnded) bool { return wire.CodeOf(ev.Err) == wire.CodePermissionDenied })
	check(t, "status", m.Status().Err, wire.ErrPermissionDenied)
	_, err := ep.Join(t.Context(), "team.other", func(*endpoint.Delivery) {}, nil)
	check(t, "join", err, wire.ErrPermissionDenied)
	if all := got.list(); len(all) != 0 {
		t.Errorf("shown %q", all)
	}
}

// TestMentionOfSomebodyAway reaches it when it comes back, without it having joined anything.
func TestMentionOfSomebodyAway(t *testing.T) {
	mesh := cotaltest.New(t, nil)
	creds := mesh.Credentials(t, "carol", nil)
	got := newJournal[string]()
	start := func() *endpoint.Endpoint {
		ep := mesh.Connect(t, creds, nil)
		check(t, "handle", ep.HandleMentions(t.Context(), func(d *endpoint.Delivery) { got.add(d.Message.Text()) }), nil)
		return ep
	}
	ep := start()
	ada := mesh.Endpoint(t, "ada", nil)
	say := func(text string) {
		t.Helper()
		d := endpoint.Text(text)
		d.Mentions = []string{"carol"}
		must(ada.Post(t.Context(), "team", d))(t)
	}
	say("one")
	got.waitLen(t, 1)
	check(t, "close", ep.Close(), nil)
	say("two")
	start()
	say("three")
	if all := fmt.Sprint(got.waitLen(t, 3)); all != "[one two three]" {
		t.Errorf("mentions %s", all)
	}
}
