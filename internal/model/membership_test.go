package model_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// settleLimit bounds how long a member may take to be shown what the model says.
const settleLimit = 20 * time.Second

// post is one message of the model.
type post struct {
	sequence uint64
	id       string
	channel  string
}

// interval is (join, leave]; leave 0 is open.
type interval struct{ join, leave uint64 }

func (iv interval) holds(seq uint64) bool {
	return seq > iv.join && (iv.leave == 0 || seq <= iv.leave)
}

// membership is what a member must be shown of one pattern, and what it was.
type membership struct {
	pattern   string
	intervals []interval
	discarded uint64 // what was posted up to here and not shown was given up by a leave
	live      *endpoint.Membership

	mu      sync.Mutex // guards the fields below
	changed chan struct{}
	shown   []post
	lives   []int
}

func (m *membership) show(d *endpoint.Delivery, life int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shown = append(m.shown, post{d.Sequence, d.Message.ID, d.Channel})
	m.lives = append(m.lives, life)
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *membership) open() bool {
	return len(m.intervals) > 0 && m.intervals[len(m.intervals)-1].leave == 0
}

// member is one principal: its process comes and goes, its memberships stay.
type member struct {
	name  string
	creds *trust.Credentials
	read  []string
	ep    *endpoint.Endpoint
	wires *wires
	life  int
	of    map[string]*membership
}

// wires lets a test cut every connection of an endpoint and refuse new ones, as a killed process would.
type wires struct {
	via  nats.InProcessConnProvider
	mu   sync.Mutex
	all  []net.Conn
	dead bool
}

var errDead = errors.New("the process is dead")

func (w *wires) InProcessConn() (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return nil, errDead
	}
	c, err := w.via.InProcessConn()
	if err == nil {
		w.all = append(w.all, c)
	}
	return c, err
}

func (w *wires) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
	for _, c := range w.all {
		_ = c.Close()
	}
}

// machine is the mesh and the model of one run.
type machine struct {
	mesh    *cotaltest.Mesh
	prefix  string
	poster  *endpoint.Endpoint
	members []*member
	posts   []post
	ids     int
}

func (m *machine) channels() []string { return []string{m.prefix + ".a", m.prefix + ".b"} }
func (m *machine) patterns() []string { return append(m.channels(), m.prefix+".>") }

func (m *machine) member(t *rapid.T) *member {
	return m.members[rapid.IntRange(0, len(m.members)-1).Draw(t, "member")]
}

func (m *machine) post(t *rapid.T) {
	channel := rapid.SampledFrom(m.channels()).Draw(t, "channel")
	for range rapid.IntRange(1, 5).Draw(t, "count") {
		m.ids++
		r, err := m.poster.Post(context.Background(), channel, endpoint.Draft{ID: fmt.Sprintf("%s-%d", m.prefix, m.ids), Parts: []wire.Part{wire.Text("x")}})
		if err != nil {
			t.Fatalf("post: %v", err)
		}
		m.posts = append(m.posts, post{r.Sequence, r.ID, channel})
	}
}

// start begins a new process of a member and joins what it is a member of.
func (m *machine) start(t *rapid.T, p *member) {
	p.life++
	p.wires = &wires{via: m.mesh.InProcess()}
	ep, err := endpoint.Connect(context.Background(), "", endpoint.Static(p.creds), &endpoint.Options{
		Name: p.name, InProcess: p.wires, CloseTimeout: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatalf("start %s: %v", p.name, err)
	}
	p.ep = ep
	for _, ms := range p.of {
		if ms.open() && p.reads(ms.pattern) {
			m.join(t, p, ms)
		}
	}
}

func (p *member) reads(pattern string) bool {
	return slices.ContainsFunc(p.read, func(r string) bool { return wire.PatternCovers(r, pattern) })
}

// join makes the process of p a receiver of ms, and holds the interval against the model.
func (m *machine) join(t *rapid.T, p *member, ms *membership) {
	ctx, cancel := context.WithTimeout(context.Background(), settleLimit)
	defer cancel()
	life := p.life
	live, err := p.ep.Join(ctx, ms.pattern, func(d *endpoint.Delivery) { ms.show(d, life) }, nil)
	if err != nil {
		t.Fatalf("%s joins %q: %v", p.name, ms.pattern, err)
	}
	st := live.Status()
	if !st.Established || !st.Durable {
		t.Fatalf("%s joined %q: %+v", p.name, ms.pattern, st)
	}
	ms.live = live
	if ms.open() {
		if want := ms.intervals[len(ms.intervals)-1].join; st.Joined != want {
			t.Fatalf("%s came back to %q joined at %d, want %d", p.name, ms.pattern, st.Joined, want)
		}
		return
	}
	if n := len(m.posts); n > 0 && st.Joined < m.posts[n-1].sequence {
		t.Fatalf("%s joined %q at %d, before what was posted at %d", p.name, ms.pattern, st.Joined, m.posts[n-1].sequence)
	}
	ms.intervals = append(ms.intervals, interval{join: st.Joined})
}

func (m *machine) joinSome(t *rapid.T) {
	p := m.member(t)
	pattern := rapid.SampledFrom(m.patterns()).Draw(t, "pattern")
	if p.ep == nil || !p.reads(pattern) {
		return
	}
	ms := p.of[pattern]
	if ms == nil {
		ms = &membership{pattern: pattern, changed: make(chan struct{})}
		p.of[pattern] = ms
	}
	if ms.live != nil {
		return
	}
	m.join(t, p, ms)
}

func (m *machine) leaveSome(t *rapid.T) {
	p := m.member(t)
	pattern := rapid.SampledFrom(m.patterns()).Draw(t, "pattern")
	ms := p.of[pattern]
	if p.ep == nil || ms == nil || ms.live == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleLimit)
	defer cancel()
	if err := ms.live.Leave(ctx); err != nil {
		t.Fatalf("%s leaves %q: %v", p.name, pattern, err)
	}
	ms.live = nil
	last := m.last()
	ms.intervals[len(ms.intervals)-1].leave, ms.discarded = max(last, ms.intervals[len(ms.intervals)-1].join), last
}

// leaveAway ends a membership while the process that would be shown its messages is not there: what waits inside the
// interval stays, and is shown to who joins again.
func (m *machine) leaveAway(t *rapid.T) {
	p := m.member(t)
	pattern := rapid.SampledFrom(m.patterns()).Draw(t, "pattern")
	ms := p.of[pattern]
	if p.ep != nil || ms == nil || !ms.open() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleLimit)
	defer cancel()
	other, err := endpoint.Connect(ctx, "", endpoint.Static(p.creds), &endpoint.Options{Name: p.name, InProcess: m.mesh.InProcess(), Quiet: true})
	if err != nil {
		t.Fatalf("second process of %s: %v", p.name, err)
	}
	defer func() { _ = other.Close() }()
	r, err := other.LeaveChannel(ctx, pattern, false)
	if err != nil {
		t.Fatalf("%s leaves %q: %v", p.name, pattern, err)
	}
	if r.Left < m.last() {
		t.Fatalf("%s left %q at %d, before what was posted at %d", p.name, pattern, r.Left, m.last())
	}
	ms.intervals[len(ms.intervals)-1].leave = max(r.Left, ms.intervals[len(ms.intervals)-1].join)
}

func (m *machine) last() uint64 {
	if len(m.posts) == 0 {
		return 0
	}
	return m.posts[len(m.posts)-1].sequence
}

// crash cuts the process of a member off at any point; what it was shown it may not have reported.
func (m *machine) crash(p *member) {
	p.wires.cut()
	_ = p.ep.Close() // says nothing to anybody: its connections are gone
	p.ep = nil
	for _, ms := range p.of {
		ms.live = nil
	}
}

func (m *machine) crashSome(t *rapid.T) {
	p := m.member(t)
	if p.ep == nil {
		return
	}
	m.crash(p)
}

func (m *machine) stopSome(t *rapid.T) {
	p := m.member(t)
	if p.ep == nil {
		return
	}
	if err := p.ep.Close(); err != nil {
		t.Fatalf("close %s: %v", p.name, err)
	}
	p.ep = nil
	for _, ms := range p.of {
		ms.live = nil
	}
}

func (m *machine) startSome(t *rapid.T) {
	p := m.member(t)
	if p.ep != nil {
		return
	}
	m.start(t, p)
}

// regrant gives a member another read list; its process begins anew with it.
func (m *machine) regrant(t *rapid.T) {
	p := m.member(t)
	lists := [][]string{{m.prefix + ".>"}, {m.prefix + ".a"}, {m.prefix + ".a", m.prefix + ".b"}, {m.prefix + ".other"}}
	read := rapid.SampledFrom(lists).Draw(t, "read list")
	if p.ep != nil {
		m.settleOne(t, p)
		m.crash(p)
	}
	creds, err := m.mesh.Node().Authority().Issue(context.Background(), auth.Request{Space: m.mesh.Space(), Actor: p.name, Subscribe: read, Renew: true})
	if err != nil {
		t.Fatalf("grant %s %q: %v", p.name, read, err)
	}
	p.creds, p.read = creds, read
	m.start(t, p)
}

func (m *machine) settle(t *rapid.T) {
	for _, p := range m.members {
		if p.ep != nil {
			m.settleOne(t, p)
		}
	}
}

// settleOne waits until a running member was shown what the model says of each of its memberships.
func (m *machine) settleOne(t *rapid.T, p *member) {
	limit := time.NewTimer(settleLimit)
	defer limit.Stop()
	for _, ms := range p.of {
		if ms.live == nil {
			continue
		}
		for {
			ms.mu.Lock()
			missing, changed := m.missing(p, ms), ms.changed
			ms.mu.Unlock()
			if len(missing) == 0 {
				break
			}
			select {
			case <-changed:
			case <-limit.C:
				t.Fatalf("%s was not shown %v of %q; status %+v", p.name, missing, ms.pattern, ms.live.Status())
			}
		}
	}
}

// missing is what ms must hold and does not. ms.mu is held.
func (m *machine) missing(p *member, ms *membership) []post {
	seen := map[uint64]bool{}
	for _, s := range ms.shown {
		seen[s.sequence] = true
	}
	var out []post
	for _, q := range m.posts {
		inside := slices.ContainsFunc(ms.intervals, func(iv interval) bool { return iv.holds(q.sequence) })
		if inside && wire.PatternMatches(ms.pattern, q.channel) && q.sequence > ms.discarded && !seen[q.sequence] {
			out = append(out, q)
		}
	}
	return out
}

// check holds everything that was ever shown against the model.
func (m *machine) check(t *rapid.T) {
	known := map[uint64]post{}
	for _, q := range m.posts {
		known[q.sequence] = q
	}
	for _, p := range m.members {
		for _, ms := range p.of {
			ms.mu.Lock()
			checkShown(t, p.name, ms, known)
			ms.mu.Unlock()
		}
	}
}

func checkShown(t *rapid.T, name string, ms *membership, known map[uint64]post) {
	type once struct {
		life int
		id   string
	}
	inLife, last := map[once]bool{}, map[int]uint64{}
	for i, s := range ms.shown {
		life := ms.lives[i]
		switch {
		case known[s.sequence] != s:
			t.Fatalf("%s was shown %v on %q, which is not what was posted: %v", name, s, ms.pattern, known[s.sequence])
		case !wire.PatternMatches(ms.pattern, s.channel):
			t.Fatalf("%s was shown %v outside of %q", name, s, ms.pattern)
		case !slices.ContainsFunc(ms.intervals, func(iv interval) bool { return iv.holds(s.sequence) }):
			t.Fatalf("%s was shown %v outside of its intervals %v of %q", name, s, ms.intervals, ms.pattern)
		case inLife[once{life, s.id}]:
			t.Fatalf("%s was shown %v of %q twice in one life", name, s, ms.pattern)
		case s.sequence <= last[life]:
			t.Fatalf("%s was shown %v of %q after sequence %d", name, s, ms.pattern, last[life])
		}
		inLife[once{life, s.id}], last[life] = true, s.sequence
	}
}

// TestMembershipsAgainstAModel runs random histories of three members on a real mesh, and compares.
func TestMembershipsAgainstAModel(t *testing.T) {
	mesh := cotaltest.New(t, nil)
	poster := mesh.Endpoint(t, "poster", nil)
	// A membership that ended before the first message of a space would look like one that goes on: both are at 0.
	if _, err := poster.Post(t.Context(), "first", endpoint.Draft{Parts: []wire.Part{wire.Text("x")}}); err != nil {
		t.Fatal(err)
	}
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		m := &machine{mesh: mesh, prefix: fmt.Sprintf("r%d", run), poster: poster}
		for _, name := range []string{"ada", "bob", "cleo"} {
			actor := fmt.Sprintf("%s_%d", name, run)
			read := []string{m.prefix + ".>"}
			creds, err := mesh.Node().Authority().Issue(context.Background(), auth.Request{Space: mesh.Space(), Actor: actor, Subscribe: read})
			if err != nil {
				rt.Fatal(err)
			}
			p := &member{name: actor, creds: creds, read: read, of: map[string]*membership{}}
			m.members = append(m.members, p)
			m.start(rt, p)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"post": m.post, "join": m.joinSome, "leave": m.leaveSome, "leave away": m.leaveAway, "crash": m.crashSome, "stop": m.stopSome,
			"start": m.startSome, "regrant": m.regrant, "settle": m.settle, "": m.check,
		})
		for _, p := range m.members {
			if p.ep == nil {
				m.start(rt, p)
			}
		}
		m.settle(rt)
		m.check(rt)
		for _, p := range m.members {
			if err := p.ep.Close(); err != nil {
				rt.Fatalf("close %s: %v", p.name, err)
			}
		}
	})
}
