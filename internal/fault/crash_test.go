package fault_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

// What a process of the crash matrix can be.
const (
	roleNode     = "node" // the broker and the authority; the delivery role is a process of its own
	roleDelivery = "delivery"
	roleMember   = "member"

	childURL     = "COTAL_FAULT_URL"
	childName    = "COTAL_FAULT_MEMBER"
	childPattern = "COTAL_FAULT_PATTERN"
)

// crashChild is a delivery role, or a member whose application notes every message that it is shown in a file.
func crashChild(dir string, out io.Writer) error {
	ctx, cancel := untilParentEnds()
	defer cancel()
	if os.Getenv(childRole) == roleDelivery {
		store, err := records(dir)
		if err != nil {
			return err
		}
		client, err := waitNode(ctx, os.Getenv(childURL), store)
		if err != nil {
			return err
		}
		defer func() { _ = client.Close() }()
		return client.ServeDelivery(ctx, spaceName, func() { fmt.Fprintln(out, "serving") })
	}
	return member(ctx, dir, os.Getenv(childName), os.Getenv(childPattern), out)
}

func member(ctx context.Context, dir, name, pattern string, out io.Writer) error {
	log, err := os.OpenFile(logFile(dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	ep, err := endpoint.Connect(ctx, os.Getenv(childURL), endpoint.File(credsFile(dir, name)), &endpoint.Options{Name: name})
	if err != nil {
		return err
	}
	m, err := ep.Join(ctx, pattern, func(d *endpoint.Delivery) {
		// One write is one line, whatever kills this process between two.
		if _, err := fmt.Fprintf(log, "%d %d %s %s %t\n", os.Getpid(), d.Sequence, d.Channel, d.Message.ID, d.Replayed); err != nil {
			panic(err)
		}
	}, nil)
	if err != nil {
		return err
	}
	for !m.Status().Established && ctx.Err() == nil {
		pause(5 * time.Millisecond)
	}
	fmt.Fprintln(out, m.Status().Joined)
	<-ctx.Done()
	return ep.Close()
}

func logFile(dir, name string) string   { return filepath.Join(dir, name+".log") }
func credsFile(dir, name string) string { return filepath.Join(dir, name+".creds") }

// crew is the processes of one run of the matrix.
type crew struct {
	dir, url string
	port     string
	node     *child
	delivery *child
	members  map[string]*watched
}

// watched is a member process and what it must be shown.
type watched struct {
	name, pattern string
	process       *child
	joined        uint64
}

func newCrew(t *testing.T) *crew {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	c := &crew{dir: t.TempDir(), port: port, members: map[string]*watched{}}
	c.startNode(t)
	c.startDelivery(t)
	client := dialNode(t.Context(), t, c.url, c.dir)
	defer func() { _ = client.Close() }()
	for name, pattern := range map[string]string{"one": "team.one", "all": "team.>", "two": "team.two"} {
		creds, err := client.Authority().Issue(t.Context(), auth.Request{Space: spaceName, Actor: name, Subscribe: []string{"team.>"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(credsFile(c.dir, name), creds.Reveal(), 0o600); err != nil {
			t.Fatal(err)
		}
		c.members[name] = &watched{name: name, pattern: pattern}
		c.startMember(t, name)
	}
	return c
}

func (c *crew) startNode(t *testing.T) {
	c.node = spawn(t, childDir+"="+c.dir, childRole+"="+roleNode, childPort+"="+c.port)
	c.url = c.node.url
}

func (c *crew) startDelivery(t *testing.T) {
	c.delivery = spawn(t, childDir+"="+c.dir, childRole+"="+roleDelivery, childURL+"="+c.url)
}

func (c *crew) startMember(t *testing.T, name string) {
	m := c.members[name]
	m.process = spawn(t, childDir+"="+c.dir, childRole+"="+roleMember, childURL+"="+c.url, childName+"="+name, childPattern+"="+m.pattern)
	joined, err := strconv.ParseUint(m.process.url, 10, 64)
	if err != nil {
		t.Fatalf("member %s said %q: %v", name, m.process.url, err)
	}
	if m.joined == 0 {
		m.joined = joined
	} else if joined != m.joined {
		t.Errorf("member %s came back joined at %d, want %d: its interval moved", name, joined, m.joined)
	}
}

// posts is what the broker acknowledged, by sequence.
type posts struct {
	mu    sync.Mutex
	bySeq map[uint64]posted
	ids   map[string]bool // of everything tried
}

type posted struct{ id, channel string }

// poster connects who posts, before anything is killed.
func (c *crew) poster(t *testing.T) *endpoint.Endpoint {
	t.Helper()
	client := dialNode(t.Context(), t, c.url, c.dir)
	creds, err := client.Authority().Issue(t.Context(), auth.Request{Space: spaceName, Actor: "poster", Publish: []string{"team.>"}})
	_ = client.Close()
	if err != nil {
		t.Fatal(err)
	}
	ep, err := endpoint.Connect(t.Context(), c.url, endpoint.Static(creds), &endpoint.Options{Name: "poster"})
	if err != nil {
		t.Fatal(err)
	}
	return ep
}

// post keeps about a thousand messages a second going to two channels until ctx ends.
func post(ctx context.Context, ep *endpoint.Endpoint, p *posts) {
	defer func() { _ = ep.Close() }()
	const workers = 4
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			tick := time.NewTicker(workers * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				channel := []string{"team.one", "team.two"}[(w+i)%2]
				id := fmt.Sprintf("w%di%d", w, i)
				p.mu.Lock()
				p.ids[id] = true
				p.mu.Unlock()
				r, err := ep.Post(ctx, channel, endpoint.Draft{ID: id, Parts: []wire.Part{wire.Text("x")}})
				if err != nil {
					continue // unknown or refused: it may be stored, and nobody promised it
				}
				p.mu.Lock()
				p.bySeq[r.Sequence] = posted{r.ID, channel}
				p.mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// shown is one line of a member's file.
type shown struct {
	process  int
	sequence uint64
	channel  string
	id       string
	replayed bool
}

func (c *crew) shown(t *testing.T, name string) []shown {
	t.Helper()
	data, err := os.ReadFile(logFile(c.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	var out []shown
	for line := range strings.Lines(string(data)) {
		if !strings.HasSuffix(line, "\n") {
			break // half of it is written: a write that crosses a page shows in two steps
		}
		var s shown
		if _, err := fmt.Sscan(line, &s.process, &s.sequence, &s.channel, &s.id, &s.replayed); err != nil {
			t.Fatalf("member %s wrote %q: %v", name, line, err)
		}
		out = append(out, s)
	}
	return out
}

// missing counts what a member was not shown of what was acknowledged in its interval.
func (c *crew) missing(t *testing.T, m *watched, p *posts) (lost []posted) {
	seen := map[uint64]bool{}
	for _, s := range c.shown(t, m.name) {
		seen[s.sequence] = true
	}
	for seq, post := range p.bySeq {
		if seq > m.joined && wire.PatternMatches(m.pattern, post.channel) && !seen[seq] {
			lost = append(lost, post)
		}
	}
	return lost
}

// check waits until every member was shown everything, and then holds each line of its file against the promise. clientKilled
// says that members themselves were killed: only then may a message be shown again, to a new process, marked as such.
func (c *crew) check(t *testing.T, p *posts, clientKilled bool) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for _, m := range c.members {
		for len(c.missing(t, m, p)) > 0 && time.Now().Before(deadline) {
			pause(50 * time.Millisecond)
		}
		if lost := c.missing(t, m, p); len(lost) > 0 {
			t.Errorf("member %s was not shown %d acknowledged messages of its interval: %.5v", m.name, len(lost), lost)
		}
		type life struct {
			process int
			id      string
		}
		inOneLife, before := map[life]bool{}, map[string]bool{}
		last := map[int]uint64{}
		again := 0
		for _, s := range c.shown(t, m.name) {
			switch {
			case s.sequence <= m.joined:
				t.Errorf("member %s was shown %q of sequence %d, before it joined at %d", m.name, s.id, s.sequence, m.joined)
			case !wire.PatternMatches(m.pattern, s.channel) || !p.ids[s.id]:
				t.Errorf("member %s was shown %q on %q, which nobody posted there", m.name, s.id, s.channel)
			case inOneLife[life{s.process, s.id}]:
				t.Errorf("member %s was shown %q twice in one life", m.name, s.id)
			case s.sequence <= last[s.process]:
				t.Errorf("member %s was shown sequence %d after %d", m.name, s.sequence, last[s.process])
			case before[s.id] && !clientKilled:
				t.Errorf("member %s was shown %q twice", m.name, s.id)
			case before[s.id] && !s.replayed:
				t.Errorf("member %s was shown %q again without being told that it may have seen it", m.name, s.id)
			}
			if before[s.id] {
				again++
			}
			inOneLife[life{s.process, s.id}], before[s.id] = true, true
			last[s.process] = s.sequence
		}
		t.Logf("member %s: %d messages, %d of them shown again after its process was killed", m.name, len(before), again)
	}
}

// TestCrashMatrix kills with signal 9, fifty times each at random points under traffic: a member, the delivery role, the
// broker, and any of them in turn. Afterwards every member was shown each acknowledged message of its interval, in order,
// none from outside, and none twice by one process. A member that was killed itself between being shown a message and
// reporting it is shown it again, marked.
func TestCrashMatrix(t *testing.T) {
	kills := map[string]func(t *testing.T, c *crew, round int){
		"member": func(t *testing.T, c *crew, round int) {
			name := []string{"one", "all", "two"}[round%3]
			c.members[name].process.kill()
			c.startMember(t, name)
		},
		"delivery": func(t *testing.T, c *crew, _ int) {
			c.delivery.kill()
			c.startDelivery(t)
		},
		"broker": func(t *testing.T, c *crew, _ int) {
			c.node.kill()
			c.startNode(t)
		},
	}
	kills["any"] = func(t *testing.T, c *crew, round int) {
		kills[[]string{"member", "delivery", "broker"}[rand.IntN(3)]](t, c, round)
	}
	for what, kill := range kills {
		t.Run(what, func(t *testing.T) {
			c := newCrew(t)
			p := &posts{bySeq: map[uint64]posted{}, ids: map[string]bool{}}
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			ep := c.poster(t)
			wg.Go(func() { post(ctx, ep, p) })
			for round := range 50 {
				pause(50*time.Millisecond + time.Duration(rand.IntN(200))*time.Millisecond) // real time: the point of the kill must be random
				kill(t, c, round)
			}
			pause(200 * time.Millisecond)
			stop()
			wg.Wait()
			t.Logf("%d messages acknowledged around 50 kills", len(p.bySeq))
			if len(p.bySeq) < 1000 {
				t.Fatalf("only %d messages were acknowledged, too few to prove anything", len(p.bySeq))
			}
			c.check(t, p, what == "member" || what == "any")
		})
	}
}
