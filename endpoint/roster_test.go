package endpoint_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// fakeRoster plays the delivery service's part of the roster.
type fakeRoster struct {
	w               *openWorld
	instance, epoch string

	mu       sync.Mutex
	sequence uint64
	entries  map[string]wire.RosterEntry
	asked    int
	page     int  // entries per page
	turns    bool // another instance answers each time
	fail     *wire.Error
}

func (f *fakeRoster) register(s *control.Service) {
	control.Handle(s, control.Command{Name: wire.CommandRoster, Effect: control.Read},
		func(_ context.Context, _ *control.Request, in wire.RosterRequest) (wire.RosterReply, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.fail != nil {
				return wire.RosterReply{}, f.fail
			}
			if in.After == "" {
				f.asked++
			}
			if f.turns {
				f.instance += "x"
			}
			r := wire.RosterReply{Instance: f.instance, Epoch: f.epoch, Sequence: f.sequence, Entries: []wire.RosterEntry{}, Total: len(f.entries)}
			for _, name := range []string{"local.ada", "local.bob", "local.eve"} {
				entry, ok := f.entries[name]
				if !ok || name <= in.After {
					continue
				}
				if len(r.Entries) == f.page {
					r.Next = r.Entries[f.page-1].Principal
					break
				}
				r.Entries = append(r.Entries, entry)
			}
			return r, nil
		})
}

// set changes one entry, and tells the feed unless it is to be lost.
func (f *fakeRoster) set(name string, status wire.Status, tell bool) {
	f.mu.Lock()
	f.sequence++
	entry := wire.RosterEntry{Principal: name, Sequence: f.sequence, SeenMS: 1, Presence: wire.Presence{
		Card: wire.Card{ID: name, Name: "x", Kind: "agent"}, Status: status, LifecycleUID: wire.NewUID(), TS: 1,
	}}
	f.entries[name] = entry
	f.mu.Unlock()
	if tell {
		f.tell(wire.RosterEvent{Kind: wire.RosterChange, Sequence: entry.Sequence, Entry: &entry})
	}
}

func (f *fakeRoster) remove(name string) {
	f.mu.Lock()
	f.sequence++
	seq := f.sequence
	delete(f.entries, name)
	f.mu.Unlock()
	f.tell(wire.RosterEvent{Kind: wire.RosterRemove, Sequence: seq, Principal: name})
}

func (f *fakeRoster) last() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sequence
}

func (f *fakeRoster) times() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func (f *fakeRoster) tell(ev wire.RosterEvent) {
	f.w.tb.Helper()
	subject := must(wire.EventSubject{
		Space: lab, Endpoint: wire.DeliveryEndpoint, Instance: f.instance, Epoch: f.epoch, Topic: wire.TopicRoster,
	}.Subject())(f.w.tb)
	if err := f.w.nc.Publish(subject, must(json.Marshal(ev))(f.w.tb)); err != nil {
		f.w.tb.Error(err)
	}
}

// told is an update as text.
func told(u endpoint.RosterUpdate) string {
	var b strings.Builder
	if u.Snapshot {
		b.WriteString("all:")
	}
	for _, e := range u.Entries {
		fmt.Fprintf(&b, " %s=%s", strings.TrimPrefix(e.Principal, "local."), e.Presence.Status)
	}
	for _, r := range u.Removed {
		fmt.Fprintf(&b, " -%s", r)
	}
	if !u.StaleSince.IsZero() {
		b.WriteString(" stale")
	}
	return strings.TrimSpace(b.String())
}

func TestWatchRoster(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newOpenWorld(t)
		f := &fakeRoster{w: w, instance: "one", epoch: "1", entries: map[string]wire.RosterEntry{}, page: 1}
		w.unserve()
		w.serve(&control.Options{Instance: "one", Epoch: "1"}, f.register)
		ep := w.connect("ada", nil)
		f.set("local.ada", wire.StatusIdle, true)
		f.set("local.bob", wire.StatusIdle, true)
		got := newJournal[string]()
		wantTold := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			if got := got.take(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: told %q, want %q", what, got, want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- ep.WatchRoster(ctx, func(u endpoint.RosterUpdate) { got.add(told(u)) })
		}()
		synctest.Wait()
		wantTold("start", "all: ada=idle bob=idle")

		f.set("local.bob", wire.StatusWorking, true)
		f.remove("local.bob")
		f.set("local.eve", wire.StatusIdle, true)
		wantTold("changes", "bob=working", "-local.bob", "eve=idle")

		f.set("local.eve", wire.StatusWaiting, false) // lost on the way
		f.set("local.ada", wire.StatusWorking, true)
		time.Sleep(time.Second)
		wantTold("a hole", "all: ada=working eve=waiting")

		f.set("local.eve", wire.StatusIdle, false) // lost, and nothing after it
		f.tell(wire.RosterEvent{Kind: wire.RosterAlive, Sequence: f.last()})
		time.Sleep(time.Second)
		wantTold("a hole at the end", "all: ada=working eve=idle")

		for range 10 { // quiet, but alive
			time.Sleep(2 * time.Second)
			f.tell(wire.RosterEvent{Kind: wire.RosterAlive, Sequence: f.last()})
		}
		wantTold("quiet")

		f.tell(wire.RosterEvent{Kind: wire.RosterAlive, Sequence: f.last(), StaleSince: 5})
		f.tell(wire.RosterEvent{Kind: wire.RosterAlive, Sequence: f.last(), StaleSince: 5})
		f.tell(wire.RosterEvent{Kind: wire.RosterAlive, Sequence: f.last()})
		wantTold("delivery itself is deaf for a while", "stale", "")

		before := f.times()
		f.mu.Lock()
		f.fail = wire.Errorf(wire.CodeUnavailable, "not now")
		f.mu.Unlock()
		time.Sleep(time.Minute) // silence
		wantTold("silence", "stale")
		f.mu.Lock()
		f.fail, f.epoch = nil, "2" // delivery was started again
		f.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := got.take(); len(got) == 0 || got[0] != "all: ada=working eve=idle" {
			t.Errorf("after the silence: told %q", got)
		}
		if n := f.times() - before; n > 15 {
			t.Errorf("asked %d times in two minutes", n)
		}
		cancel()
		check(t, "watch", <-done, nil)
	})
}

func TestRosterPages(t *testing.T) {
	w := newOpenWorld(t)
	f := &fakeRoster{w: w, instance: "one", epoch: "1", entries: map[string]wire.RosterEntry{}, page: 2}
	w.unserve()
	w.serve(nil, f.register)
	ep := w.connect("ada", nil)
	for _, name := range []string{"local.ada", "local.bob", "local.eve"} {
		f.set(name, wire.StatusIdle, false)
	}
	r, err := ep.Roster(t.Context())
	if err != nil || len(r.Entries) != 3 || !r.StaleSince.IsZero() {
		t.Errorf("roster = %+v, %v", r, err)
	}
	f.mu.Lock()
	f.turns = true // as two instances do whose answers alternate
	f.mu.Unlock()
	before := f.times()
	if _, err := ep.Roster(t.Context()); wire.CodeOf(err) != wire.CodeUnavailable || f.times()-before > 10 {
		t.Errorf("of two instances that take turns: %v, asked %d times", err, f.times()-before)
	}
}

func TestWatchRosterWithoutRight(t *testing.T) {
	w := newWorld(t)
	ep := w.connect(w.user("op", func(r *mint.UserRequest) { r.Profile, r.Subscribe, r.Publish = "operator", nil, nil }), nil)
	err := ep.WatchRoster(t.Context(), func(endpoint.RosterUpdate) {})
	wantError(t, err, wire.CodePermissionDenied, wire.OutcomeNotExecuted)
}

func TestControlCalls(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		events := newJournal[endpoint.Event]()
		ep := w.connect(w.user("ada"), &endpoint.Options{OnEvent: events.add})
		start := time.Now()
		_, err := ep.Roster(t.Context()) // permitted, and nobody there
		if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.CodeUnavailable || e.Outcome != wire.OutcomeNotExecuted {
			t.Errorf("roster without delivery: %v", err)
		}
		err = ep.Call(t.Context(), control.Target{Endpoint: wire.DeliveryEndpoint, Command: wire.CommandChannelSet}, nil, nil)
		if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.CodePermissionDenied || e.Outcome != wire.OutcomeNotExecuted {
			t.Errorf("denied command: %v", err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("refusals took %v", took)
		}
		if n := countEvents[endpoint.EventDenied](events); n > 0 {
			t.Errorf("%d denials reported twice", n)
		}
		if _, err := ep.Scatter(t.Context(), control.Target{Endpoint: wire.DeliveryEndpoint, Command: "health"}, nil, 0, 0); wire.CodeOf(err) != wire.CodeUnavailable {
			t.Errorf("scatter to nobody: %v", err)
		}
	})
}

func TestChannelsAndHistory(t *testing.T) {
	w := newOpenWorld(t)
	stored := func(seq uint64, sender wire.Principal, data []byte) wire.HistoryMessage {
		return wire.HistoryMessage{Sequence: seq, TimeMS: 1000, Sender: sender.String(), Message: data}
	}
	w.unserve()
	w.serve(nil, func(s *control.Service) {
		control.Handle(s, control.Command{Name: wire.CommandChannels, Effect: control.Read},
			func(_ context.Context, _ *control.Request, in wire.ChannelsRequest) (wire.ChannelsReply, error) {
				if in.After == "" {
					return wire.ChannelsReply{Channels: []wire.ChannelInfo{{Channel: "a", DeliveryClass: "live"}}, Next: "a"}, nil
				}
				return wire.ChannelsReply{Channels: []wire.ChannelInfo{{Channel: "b", DeliveryClass: "live"}}, Partial: true}, nil
			})
		control.Handle(s, control.Command{Name: wire.CommandHistory, Effect: control.Read},
			func(_ context.Context, _ *control.Request, in wire.HistoryRequest) (wire.HistoryReply, error) {
				return wire.HistoryReply{Channel: in.Channel, Next: 9, Remaining: 3, Skipped: 1, Messages: []wire.HistoryMessage{
					stored(1, ada, encode(t, ada, in.Channel, "1", "one")),
					stored(2, bob, encode(t, ada, in.Channel, "2", "forged")),
					stored(3, ada, encode(t, ada, "other", "3", "elsewhere")),
				}}, nil
			})
	})
	ep := w.connect("carol", nil)
	list, err := ep.Channels(t.Context())
	if err != nil || len(list.Channels) != 2 || list.Channels[1].Channel != "b" || !list.Partial {
		t.Errorf("channels = %+v, %v", list, err)
	}
	page, err := ep.History(t.Context(), wire.HistoryRequest{Channel: "team"})
	if err != nil || len(page.Messages) != 1 || page.Next != 9 || page.Remaining != 3 || page.Skipped != 3 {
		t.Fatalf("history = %+v, %v", page, err)
	}
	if d := page.Messages[0]; d.Sender != ada || d.Sequence != 1 || d.Channel != "team" || d.Time != time.UnixMilli(1000) || d.Ack(t.Context()) != nil {
		t.Errorf("message = %+v", d)
	}
}
