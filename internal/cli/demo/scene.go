package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/wire"
)

// play is the script.
func (st *stage) play(ctx context.Context) error {
	st.say("scene", "", "", "an authenticated space on the embedded broker; three peers arrive")
	ada, err := st.enter(ctx, "ada", "")
	if err != nil {
		return err
	}
	bob, err := st.enter(ctx, "bob", role)
	if err != nil {
		return err
	}
	if _, err := st.enter(ctx, "cyn", role); err != nil {
		return err
	}
	watched, unwatch := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer unwatch()
	watch.Go(func() {
		if err := ada.WatchRoster(watched, st.roster); err != nil {
			st.note(func() { st.failed = fmt.Errorf("watch roster: %w", err) })
		}
	})
	for _, scene := range []func(context.Context, *peer, *peer) error{st.meet, st.talk, st.handOut, st.trespass, st.leave, st.comeBack, st.late} {
		if err := scene(ctx, ada, bob); err != nil {
			return err
		}
	}
	return nil
}

// roster notes who goes offline.
func (st *stage) roster(u endpoint.RosterUpdate) {
	st.note(func() {
		if st.offline == nil {
			st.offline = map[string]bool{}
		}
		for _, e := range u.Entries {
			st.offline[e.Presence.Card.ID] = e.Presence.Status == wire.StatusOffline
		}
	})
}

func (st *stage) meet(ctx context.Context, ada, _ *peer) error {
	r, err := ada.Roster(ctx)
	if err != nil {
		return fmt.Errorf("read roster: %w", err)
	}
	var names []string
	for _, e := range r.Entries {
		name := e.Presence.Card.Name
		if e.Presence.Card.Role != "" {
			name += " (" + e.Presence.Card.Role + ")"
		}
		names = append(names, name)
	}
	if len(names) != 3 {
		return fmt.Errorf("roster lists %q, want the three peers", names)
	}
	st.say("presence", ada.Principal().String(), "", "sees "+strings.Join(names, ", "))
	return nil
}

func (st *stage) talk(ctx context.Context, ada, bob *peer) error {
	if err := ada.post(ctx, "hello, is anybody free to look at change 42?", 2); err != nil {
		return err
	}
	if err := bob.post(ctx, "two reviewers here; ask the role", 2); err != nil {
		return err
	}
	if err := bob.direct(ctx, ada.Principal(), "between us: I would rather have lunch first"); err != nil {
		return err
	}
	return st.await(ctx, "the direct message", func() bool { return len(st.heard) == 3 })
}

func (st *stage) handOut(ctx context.Context, ada, _ *peer) error {
	st.say("scene", "", "", "a job for any reviewer: exactly one of the two gets it")
	if _, err := ada.Ask(ctx, role, endpoint.Draft{Parts: []wire.Part{wire.Text("please review change 42")}}); err != nil {
		return fmt.Errorf("ask %s: %w", role, err)
	}
	st.note(func() { st.sum.Sent++ })
	if err := st.await(ctx, "the answer of a reviewer", func() bool { return len(st.heard) == 4 }); err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.takers) != 1 {
		return fmt.Errorf("the job was taken by %q, want exactly one", st.takers)
	}
	st.sum.Took = st.takers[0]
	return nil
}

func (st *stage) leave(ctx context.Context, _, bob *peer) error {
	st.say("scene", "", "", "bob leaves")
	id := bob.Principal().String()
	if err := bob.Close(); err != nil {
		return fmt.Errorf("close bob: %w", err)
	}
	if err := st.await(ctx, "bob to be offline", func() bool { return st.offline[id] }); err != nil {
		return err
	}
	st.say("presence", id, "", "is offline")
	return nil
}

// comeBack has messages sent to bob while it is away, and bob come back.
func (st *stage) comeBack(ctx context.Context, ada, bob *peer) error {
	st.say("scene", "", "", "what is said meanwhile waits for bob, who comes back and gets it, once and in order")
	id := bob.Principal()
	post, err := ada.Post(ctx, channel, endpoint.Text("change 42 is merged"))
	if err != nil {
		return fmt.Errorf("post as %s: %w", ada.Principal(), err)
	}
	direct, err := ada.Direct(ctx, id, endpoint.Text("and lunch is ready"))
	if err != nil {
		return fmt.Errorf("send to %s: %w", id, err)
	}
	st.note(func() {
		st.sum.Sent += 2
		st.away = map[string]wire.Principal{post.ID: id, direct.ID: id}
	})
	if _, err := st.come(ctx, bob.creds); err != nil {
		return err
	}
	// The post is heard by the one that stayed too.
	return st.await(ctx, "what bob missed", func() bool { return st.heard[post.ID] == 2 && st.heard[direct.ID] == 1 && st.sum.Missed == 2 })
}

func (st *stage) late(ctx context.Context, _, _ *peer) error {
	st.say("scene", "", "", "dee comes late and reads the history")
	dee, err := st.enter(ctx, "dee", "")
	if err != nil {
		return err
	}
	page, err := dee.History(ctx, wire.HistoryRequest{Channel: channel, Last: 10})
	if err != nil {
		return fmt.Errorf("read history: %w", err)
	}
	if len(page.Messages) != 3 {
		return fmt.Errorf("history has %d messages, want 3", len(page.Messages))
	}
	for _, d := range page.Messages {
		st.note(func() { st.sum.Received++ })
		st.say("history", d.Sender.String(), "#"+channel, d.Message.Text())
	}
	return dee.post(ctx, "sorry I am late; I have read everything", 3)
}

// trespass tries, as ada, what ada may not do: through the library and as raw NATS with ada's credential.
func (st *stage) trespass(ctx context.Context, ada, bob *peer) error {
	st.say("scene", "", "", "ada tries what was not granted; the broker refuses")
	draft := endpoint.Draft{Parts: []wire.Part{wire.Text("must not be heard")}}
	for _, try := range []struct {
		what string
		do   func() error
	}{
		{"post to undeclared channel #ops", func() error { _, err := ada.Post(ctx, "ops", draft); return err }},
		{"listen to undeclared channel #ops", func() error { _, err := ada.Listen(ctx, "ops", func(*endpoint.Delivery) {}); return err }},
		{"change the settings of #general", func() error {
			return ada.Call(ctx, control.Target{Endpoint: wire.DeliveryEndpoint, Command: wire.CommandChannelSet}, wire.ChannelSetRequest{Channel: channel}, nil)
		}},
		{"read the history of #ops", func() error { _, err := ada.History(ctx, wire.HistoryRequest{Channel: "ops", Last: 1}); return err }},
	} {
		err := try.do()
		st.tried(try.what, errors.Is(err, wire.ErrPermissionDenied))
	}
	return st.raw(ctx, ada, bob)
}

func (st *stage) tried(what string, refused bool) {
	st.note(func() {
		st.sum.Tried++
		if !refused {
			st.failed = fmt.Errorf("%s: not refused", what)
			return
		}
		st.sum.Denied++
		st.line(Line{What: "refused", Text: what})
	})
}

// raw speaks NATS directly with ada's credential.
func (st *stage) raw(ctx context.Context, ada, bob *peer) error {
	var mu sync.Mutex
	var denied []string
	nc, err := dial.Connect(ctx, dial.Options{InProcess: st.node.InProcess(), Creds: ada.creds, Name: "raw", OnError: func(_ *nats.Conn, err error) {
		mu.Lock()
		defer mu.Unlock()
		denied = append(denied, err.Error())
	}})
	if err != nil {
		return err
	}
	defer nc.Close()
	s, victim := ada.Space(), bob.Lifecycle()
	forged, err := wire.ChannelSubject(s, victim.Principal, channel)
	if err != nil {
		return err
	}
	for _, try := range []struct{ what, subject string }{
		{"post as bob", forged},
		{"pull bob's direct messages", "$JS.API.CONSUMER.MSG.NEXT." + wire.DirectStream(s) + "." + wire.DirectDurable(victim)},
		{"create a consumer on all direct messages", "$JS.API.CONSUMER.CREATE." + wire.DirectStream(s)},
		{"read a stored direct message by number", "$JS.API.STREAM.MSG.GET." + wire.DirectStream(s)},
	} {
		if err := nc.PublishRequest(try.subject, nc.NewRespInbox(), []byte("{}")); err != nil {
			return fmt.Errorf("publish raw: %w", err)
		}
		if err := nc.Flush(); err != nil {
			return fmt.Errorf("flush raw: %w", err)
		}
		st.tried(try.what, waitFor(ctx, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.ContainsFunc(denied, func(d string) bool { return strings.Contains(d, `"`+try.subject+`"`) })
		}))
	}
	return nil
}

// waitFor polls for an asynchronous refusal, for 2 s at most.
func waitFor(ctx context.Context, ok func() bool) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(2 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}
