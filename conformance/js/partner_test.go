package js_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// requests are the credentials of the JavaScript participants.
var requests = map[string]auth.Request{
	"jay": {
		Role: "reviewer", Subscribe: []string{"team.>"}, Publish: []string{"team.backend", "team.js"}, Commands: []string{"com_example_nobody.run"},
	},
	"mallory": {Subscribe: []string{"team.>"}, Publish: []string{"team.>"}},
	"sam":     {},
}

// ask is what the scenario asks of its partner.
type ask struct {
	Do, Of, ID, Channel, To, Role, Text string
	Principal, Activity, Gone, Actor    string
	Class                               string
	Status                              wire.Status
	Redelivered                         bool
	Count                               int
	TTLMs                               int64
	IDs, Mentions                       []string
}

// answer is an object for the scenario.
type answer map[string]any

// partner moves the Go endpoints that stand beside the JavaScript participant: bob, and wes who works for the role.
type partner struct {
	mesh    *cotaltest.Mesh
	dir     string
	bob     *endpoint.Endpoint
	wes     *endpoint.Endpoint
	mo      *endpoint.Endpoint // a member of channels; nil until one is wanted
	wesCard *trust.Credentials

	heard, direct, worked mailbox[*endpoint.Delivery]
	dropped               mailbox[endpoint.EventDropped]
	roster                mailbox[wire.RosterEntry]
	undelivered           mailbox[wire.ReceiptEvent]
	told                  int // how many drops the scenario has asked about
}

func newPartner(t *testing.T, m *cotaltest.Mesh) *partner {
	p := &partner{mesh: m, dir: t.TempDir(), wesCard: m.Credentials(t, "wes", &cotaltest.Peer{Role: "reviewer"})}
	p.bob = m.Endpoint(t, "bob", &cotaltest.Peer{Options: endpoint.Options{Name: "Bob", OnEvent: func(ev endpoint.Event) {
		switch d := ev.(type) {
		case endpoint.EventDropped:
			p.dropped.put(d)
		case endpoint.EventUndelivered:
			p.undelivered.put(d.ReceiptEvent)
			if d.Recipient.Reason != "no use" { // which the client says when it ends redelivery
				t.Errorf("bob: %v", ev)
			}
		default:
			t.Errorf("bob: %v", ev)
		}
	}}})
	if _, err := p.bob.Listen(t.Context(), ">", p.heard.put); err != nil {
		t.Fatal(err)
	}
	if err := p.bob.HandleDirect(t.Context(), func(d *endpoint.Delivery) { p.settle(t, d) }); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		stop()
		wg.Wait()
	})
	wg.Go(func() {
		err := p.bob.WatchRoster(ctx, func(u endpoint.RosterUpdate) {
			for _, e := range u.Entries {
				p.roster.put(e)
			}
		})
		if err != nil {
			t.Errorf("watch roster: %v", err)
		}
	})
	return p
}

// settle acknowledges a direct message; one that says so in its context is given back the first time.
func (p *partner) settle(t *testing.T, d *endpoint.Delivery) {
	p.direct.put(d)
	settle := d.Ack
	if d.Message.ContextID == "nak" && !d.Redelivered {
		settle = func(ctx context.Context) error { return d.Nak(ctx, 0) }
	}
	if err := settle(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("settle direct message: %v", err)
	}
}

// credential writes a fresh credentials file.
func (p *partner) credential(t *testing.T, actor string, req auth.Request) string {
	creds := p.mesh.Credentials(t, actor, &cotaltest.Peer{Request: &req})
	path := filepath.Join(p.dir, actor+".creds")
	if err := os.WriteFile(path, creds.Reveal(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// do does what the scenario asks; what goes wrong is the scenario's to report.
func (p *partner) do(t *testing.T, a ask) answer {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got, err := p.act(ctx, t, a)
	if err != nil {
		return answer{"error": err.Error()}
	}
	return got
}

func (p *partner) act(ctx context.Context, t *testing.T, a ask) (answer, error) {
	switch a.Do {
	case "victim":
		id := p.bob.Identity()
		return answer{"principal": p.bob.Principal().String(), "uid": id.UID, "inbox": id.Inbox}, nil
	case "request":
		return request(requests[a.Of], a.Of), nil
	case "credential":
		return answer{"file": p.credential(t, a.Actor, auth.Request{TTL: time.Duration(a.TTLMs) * time.Millisecond})}, nil
	case "revoke":
		_, err := p.mesh.Node().Authority().Revoke(ctx, p.mesh.Space(), wire.Principal{Owner: wire.LocalOwner, Actor: a.Actor})
		return answer{}, err
	case "status":
		return answer{}, p.bob.SetStatus(ctx, a.Status, a.Activity)
	case "roster":
		return p.seen(ctx, a)
	case "post":
		return receipt(p.bob.Post(ctx, a.Channel, draft(a)))
	case "direct":
		to, err := wire.ParsePrincipal(a.To)
		if err != nil {
			return nil, err
		}
		return receipt(p.bob.Direct(ctx, to, draft(a)))
	case "ask-role":
		return receipt(p.bob.Ask(ctx, a.Role, draft(a)))
	case "heard":
		return delivered(ctx, &p.heard, a)
	case "direct-heard":
		return delivered(ctx, &p.direct, a)
	case "dropped":
		return p.drops(ctx, a.Count)
	case "unexpected":
		return p.unexpected(), nil
	case "work":
		return answer{}, p.work(ctx, t)
	case "rest":
		return answer{}, p.wes.Close()
	case "worked":
		return p.done(ctx, a.IDs)
	default:
		return p.operate(ctx, t, a)
	}
}

// operate does what an operator does, or a peer for the sake of a membership.
func (p *partner) operate(ctx context.Context, t *testing.T, a ask) (answer, error) {
	authority, space := p.mesh.Node().Authority(), p.mesh.Space()
	switch a.Do {
	case "configure":
		creds, err := authority.Personal(ctx, space, trust.Operator, "boss", time.Minute)
		if err != nil {
			return nil, err
		}
		set := wire.ChannelSetRequest{Channel: a.Channel, Config: &wire.ChannelConfig{DeliveryClass: a.Class}}
		target := control.Target{Endpoint: wire.DeliveryEndpoint, Command: wire.CommandChannelSet}
		return answer{}, p.mesh.Connect(t, creds, nil).Call(ctx, target, set, nil)
	case "clear":
		removed, err := authority.ClearHistory(ctx, space, a.Channel)
		return answer{"removed": removed}, err
	case "join":
		if p.mo == nil {
			p.mo = p.mesh.Endpoint(t, "mo", nil)
		}
		_, err := p.mo.Join(ctx, a.Channel, func(*endpoint.Delivery) {}, nil)
		return answer{}, err
	case "requeue":
		return p.requeue(ctx, a.ID)
	}
	return nil, fmt.Errorf("unknown ask %q", a.Do)
}

// requeue waits until a direct message of bob's is a dead letter, and puts it back.
func (p *partner) requeue(ctx context.Context, id string) (answer, error) {
	err := p.undelivered.wait(ctx, func(all []wire.ReceiptEvent) bool {
		return slices.ContainsFunc(all, func(e wire.ReceiptEvent) bool { return e.ID == id })
	})
	if err != nil {
		return nil, err
	}
	authority, space := p.mesh.Node().Authority(), p.mesh.Space()
	letters, _, err := authority.DeadLetters(ctx, space, 0, 0)
	if err != nil {
		return nil, err
	}
	for _, l := range letters {
		if l.MessageID == id {
			sequence, err := authority.Requeue(ctx, space, l.ID)
			return answer{"sequence": sequence}, err
		}
	}
	return nil, fmt.Errorf("message %q is no dead letter", id)
}

func draft(a ask) endpoint.Draft {
	d := endpoint.Text(a.Text)
	d.ID, d.Mentions = a.ID, a.Mentions
	return d
}

func receipt(r endpoint.Receipt, err error) (answer, error) {
	return answer{"id": r.ID, "sequence": r.Sequence, "duplicate": r.Duplicate}, err
}

// request is what a credential must say that was issued for req.
func request(req auth.Request, actor string) answer {
	return answer{
		"space": cotaltest.SpaceName, "profile": trust.Agent, "owner": wire.LocalOwner, "actor": actor, "role": req.Role,
		"subscribe": req.Subscribe, "publish": req.Publish, "commands": req.Commands,
	}
}

// seen waits until the roster as Go watches it shows a principal so.
func (p *partner) seen(ctx context.Context, a ask) (answer, error) {
	var e wire.RosterEntry
	err := p.roster.wait(ctx, func(all []wire.RosterEntry) bool {
		i := slices.IndexFunc(all, func(e wire.RosterEntry) bool {
			return e.Principal == a.Principal && e.Presence.Status == a.Status && e.Gone == a.Gone
		})
		if i >= 0 {
			e = all[i]
		}
		return i >= 0
	})
	pr := e.Presence
	return answer{
		"name": pr.Card.Name, "role": pr.Card.Role, "activity": pr.Activity, "attention": pr.Attention, "uid": pr.LifecycleUID,
	}, err
}

// delivered waits for a message by its id and, for a redelivery, for that.
func delivered(ctx context.Context, m *mailbox[*endpoint.Delivery], a ask) (answer, error) {
	var got *endpoint.Delivery
	times := 0
	err := m.wait(ctx, func(all []*endpoint.Delivery) bool {
		times = 0
		for _, d := range all {
			if d.Message.ID == a.ID {
				got = d
				times++
			}
		}
		return got != nil && got.Redelivered == a.Redelivered
	})
	if err != nil {
		return nil, err
	}
	told := answer{
		"kind": got.Kind.String(), "sender": got.Sender.String(), "channel": got.Channel, "role": got.Role, "sequence": got.Sequence,
		"redelivered": got.Redelivered, "times": times,
	}
	if a.ID != "" { // a message without an id is received and never encoded
		told["message"] = got.Message
	}
	return told, nil
}

// drops waits for the next messages that bob drops and says why.
func (p *partner) drops(ctx context.Context, count int) (answer, error) {
	var reasons []wire.Reason
	err := p.dropped.wait(ctx, func(all []endpoint.EventDropped) bool {
		if len(all) < p.told+count {
			return false
		}
		for _, d := range all[p.told : p.told+count] {
			reasons = append(reasons, d.Reason)
		}
		return true
	})
	p.told += count
	return answer{"reasons": reasons}, err
}

// unexpected lists what bob heard from others than himself and jay, or on a channel that jay may not post to, and counts the
// drops that the scenario did not ask about.
func (p *partner) unexpected() answer {
	wrong := []string{}
	for _, d := range p.heard.all() {
		own := d.Sender == p.bob.Principal()
		if !own && (d.Sender.Actor != "jay" || !slices.Contains(requests["jay"].Publish, d.Channel)) {
			wrong = append(wrong, d.Sender.String()+" on "+d.Channel)
		}
	}
	return answer{"heard": wrong, "dropped": len(p.dropped.all()) - p.told}
}

// work starts the Go worker, anew after a rest.
func (p *partner) work(ctx context.Context, t *testing.T) error {
	p.wes = p.mesh.Connect(t, p.wesCard, nil)
	return p.wes.HandleRole(ctx, func(d *endpoint.Delivery) {
		p.worked.put(d)
		if err := d.Ack(context.WithoutCancel(t.Context())); err != nil && !errors.Is(err, endpoint.ErrClosed) {
			t.Errorf("acknowledge role work: %v", err)
		}
	})
}

// done waits until the Go worker has taken the jobs and lists all that it took.
func (p *partner) done(ctx context.Context, want []string) (answer, error) {
	ids := []string{}
	err := p.worked.wait(ctx, func(all []*endpoint.Delivery) bool {
		ids = ids[:0]
		for _, d := range all {
			ids = append(ids, d.Message.ID)
		}
		return !slices.ContainsFunc(want, func(id string) bool { return !slices.Contains(ids, id) })
	})
	return answer{"ids": ids}, err
}

// mailbox keeps what came, in order. The zero value is empty and ready.
type mailbox[T any] struct {
	mu     sync.Mutex
	items  []T
	change chan struct{} // closed when something comes; nil while nobody waits
}

func (m *mailbox[T]) put(item T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.items = append(m.items, item)
	if m.change != nil {
		close(m.change)
		m.change = nil
	}
}

func (m *mailbox[T]) all() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.items)
}

// wait returns nil once enough says so of all that came.
func (m *mailbox[T]) wait(ctx context.Context, enough func([]T) bool) error {
	for {
		m.mu.Lock()
		ok := enough(m.items)
		if m.change == nil {
			m.change = make(chan struct{})
		}
		change := m.change
		m.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
