//go:build unix

package fault_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	// stopped is how long the process stands still.
	stopped = 15 * time.Second
	// noticed is how long that may cost anybody an answer.
	noticed = 10 * time.Second
)

// TestAStoppedDeliveryRecovers stops one of two delivery processes as a debugger or a starved machine does, its connection
// open. Health misses it at once, after ten seconds no request goes to it any more, and the other one serves all. When it
// goes on, and the other one is killed, it serves alone and has missed nothing.
func TestAStoppedDeliveryRecovers(t *testing.T) {
	dir := t.TempDir()
	url := spawn(t, childDir+"="+dir, childRole+"="+roleNode).url
	var roles []*child
	for range 2 {
		roles = append(roles, spawn(t, childDir+"="+dir, childRole+"="+roleDelivery, childURL+"="+url))
	}
	p := newParty(t, dir, url)
	ada, bob := p.connect("ada"), p.connect("bob")
	before := p.instances(ada, 2)
	if len(before) != 2 {
		t.Fatalf("instances = %q, want two", before)
	}
	p.mention(ada, "before")

	began := time.Now()
	roles[0].stop(t)
	still := p.instances(ada, 2)
	if len(still) != 1 || time.Since(began) > noticed {
		t.Errorf("health while one is stopped = %q after %v, want one of %q within %v", still, time.Since(began), before, noticed)
	}
	if err := bob.Close(); err != nil { // he leaves, and dave comes
		t.Error(err)
	}
	p.connect("dave")
	p.mention(ada, "meanwhile")
	p.askUntil(ada, began)

	roles[0].signal(t, syscall.SIGCONT)
	roles[1].kill()
	p.until("the process that was stopped serves alone", func() error {
		now := p.instances(ada, 1)
		if len(now) != 1 || now[0] == still[0] || !slices.Contains(before, now[0]) {
			return fmt.Errorf("instances are %q, want the one of %q beside %q", now, before, still)
		}
		return p.ask(ada)
	})
	p.until("its roster is right", func() error { return p.online(ada, "local.ada local.dave") })
	p.mention(ada, "after")
	carol := p.connect("carol")
	p.until("carol finds every mention, once", func() error { return p.mentioned(carol, "before meanwhile after") })
}

// stop stops the process and returns when it stands still.
func (c *child) stop(t *testing.T) {
	t.Helper()
	c.signal(t, syscall.SIGSTOP)
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(c.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || !status.Stopped() {
			t.Fatalf("stop process: status %x, %v", status, err)
		}
		return
	}
}

func (c *child) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		t.Fatalf("send %v: %v", s, err)
	}
}

// party is the peers of the test.
type party struct {
	t     *testing.T
	url   string
	creds map[string]*trust.Credentials
}

func newParty(t *testing.T, dir, url string) *party {
	t.Helper()
	p := &party{t: t, url: url, creds: map[string]*trust.Credentials{}}
	client := dialNode(t.Context(), t, url, dir)
	defer func() { _ = client.Close() }()
	for _, name := range []string{"ada", "bob", "carol", "dave"} {
		creds, err := client.Authority().Issue(t.Context(), auth.Request{Space: spaceName, Actor: name, Subscribe: []string{">"}, Publish: []string{">"}})
		if err != nil {
			t.Fatal(err)
		}
		p.creds[name] = creds
	}
	return p
}

func (p *party) connect(name string) *endpoint.Endpoint {
	p.t.Helper()
	ep, err := endpoint.Connect(p.t.Context(), p.url, endpoint.Static(p.creds[name]), &endpoint.Options{Name: name})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = ep.Close() })
	return ep
}

// call gives delivery a second to answer.
func (p *party) call(ep *endpoint.Endpoint, command string, args, out any) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Second)
	defer cancel()
	return ep.Call(ctx, control.Target{Endpoint: wire.DeliveryEndpoint, Command: command}, args, out)
}

func (p *party) ask(ep *endpoint.Endpoint) error {
	return errors.Join(p.call(ep, wire.CommandRoster, nil, nil), p.call(ep, wire.CommandHistory, wire.HistoryRequest{Channel: "general"}, nil))
}

// instances are those that answer for their health, as many as are expected or those of two seconds.
func (p *party) instances(ep *endpoint.Endpoint, expect int) []string {
	p.t.Helper()
	all, err := ep.Health(p.t.Context(), wire.DeliveryEndpoint, 2*time.Second, expect)
	if err != nil && !errors.Is(err, wire.ErrDeadline) && !errors.Is(err, wire.ErrUnavailable) {
		p.t.Fatal(err)
	}
	var out []string
	for _, h := range all {
		if h.Ready {
			out = append(out, h.Instance)
		}
	}
	return out
}

func (p *party) mention(from *endpoint.Endpoint, said string) {
	p.t.Helper()
	_, err := from.Post(p.t.Context(), "general", endpoint.Draft{Parts: []wire.Part{wire.Text(said)}, Mentions: []string{"carol"}})
	if err != nil {
		p.t.Fatal(err)
	}
}

// askUntil asks until the process was stopped for long enough. Every request is answered once the broker has noticed.
func (p *party) askUntil(ep *endpoint.Endpoint, began time.Time) {
	p.t.Helper()
	unanswered := 0
	for time.Since(began) < stopped {
		asked := time.Since(began)
		if err := p.ask(ep); err != nil {
			unanswered++
			if asked > noticed {
				p.t.Errorf("asked %v after the stop: %v", asked, err)
			}
		}
		pause(100 * time.Millisecond)
	}
	p.t.Logf("%d requests had no answer in the first %v", unanswered, noticed)
}

// online reports a roster other than want.
func (p *party) online(ep *endpoint.Endpoint, want string) error {
	var roster wire.RosterReply
	if err := p.call(ep, wire.CommandRoster, nil, &roster); err != nil {
		return err
	}
	var online []string
	for _, e := range roster.Entries {
		if e.Presence.Status != wire.StatusOffline {
			online = append(online, e.Principal)
		}
	}
	if got := strings.Join(online, " "); roster.StaleSince != 0 || got != want {
		return fmt.Errorf("roster = %s, stale since %d, want %s", got, roster.StaleSince, want)
	}
	return nil
}

// mentioned reports mentions other than want.
func (p *party) mentioned(ep *endpoint.Endpoint, want string) error {
	var page wire.PullReply
	if err := p.call(ep, wire.CommandPull, wire.PullRequest{Mentions: true}, &page); err != nil {
		return err
	}
	var texts []string
	for _, m := range page.Messages {
		msg, err := wire.DecodeMessage(m.Message)
		if err != nil {
			return err
		}
		texts = append(texts, msg.Text())
	}
	if got := strings.Join(texts, " "); got != want {
		return fmt.Errorf("mentions = %q, want %q", got, want)
	}
	return nil
}

// until waits, noticed at the most, until something holds.
func (p *party) until(what string, holds func() error) {
	p.t.Helper()
	start := time.Now()
	for {
		err := holds()
		if err == nil {
			p.t.Logf("after %v: %s", time.Since(start).Round(10*time.Millisecond), what)
			return
		}
		if time.Since(start) > noticed {
			p.t.Fatalf("%s: not within %v: %v", what, noticed, err)
		}
		pause(100 * time.Millisecond)
	}
}
