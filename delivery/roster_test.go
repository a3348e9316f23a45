package delivery_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/wire"
)

// watcher is what the documentation of wire.RosterReply tells a watcher to do.
type watcher struct {
	entries map[string]wire.RosterEntry
	base    uint64 // of the first page
	last    uint64 // of the last event
	hole    bool
}

func (w *watcher) snapshot(pages []*wire.RosterReply) {
	w.entries, w.base = map[string]wire.RosterEntry{}, pages[0].Sequence
	for _, p := range pages {
		for _, e := range p.Entries {
			w.entries[e.Principal] = e
		}
	}
}

func (w *watcher) event(e wire.RosterEvent) {
	if w.last != 0 && e.Sequence != w.last+1 {
		w.hole = true
	}
	w.last = e.Sequence
	name := e.Principal
	if e.Entry != nil {
		name = e.Entry.Principal
	}
	known, ok := w.entries[name]
	if after := known.Sequence; ok && e.Sequence <= after || !ok && e.Sequence <= w.base {
		return
	}
	switch e.Kind {
	case wire.RosterChange:
		w.entries[name] = *e.Entry
	case wire.RosterRemove:
		delete(w.entries, name)
	}
}

// A watcher that takes pages at any time, while changes go on between them, and applies the events from before its
// first page on, ends with the state of the roster; and the events have no hole.
func TestRosterFeedConvergesFromAnyPosition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r := delivery.NewRoster()
		now := time.UnixMilli(1_700_000_000_000)
		var events []wire.RosterEvent
		due := func() {
			more, again := r.Due(now)
			if len(more) == 0 && again.IsZero() == false && !again.After(now) {
				rt.Fatal("asked to come again in the past")
			}
			events = append(events, more...)
		}
		lives := map[int]wire.Lifecycle{}
		who := func() wire.Lifecycle {
			i := rapid.IntRange(0, 7).Draw(rt, "who")
			if _, ok := lives[i]; !ok || rapid.IntRange(0, 9).Draw(rt, "reborn") == 0 {
				lives[i] = lifecycle(fmt.Sprintf("a%d", i))
			}
			return lives[i]
		}
		step := func() {
			l := who()
			status := rapid.SampledFrom([]wire.Status{wire.StatusIdle, wire.StatusWorking, wire.StatusOffline}).Draw(rt, "status")
			rec := presence(l, status, rapid.SampledFrom([]string{"", "x", "y"}).Draw(rt, "activity"))
			rec.TS = now.UnixMilli()
			switch rapid.IntRange(0, 6).Draw(rt, "step") {
			case 0:
				r.Left(l.Principal, now)
			case 1:
				r.Silent(l.Principal, now)
			case 2:
				now = now.Add(delivery.KeepGone)
				events = append(events, r.Forget(now)...)
			case 3:
				r.Stored(l.Principal, rec, now)
			default:
				r.Heard(l.Principal, rec, now)
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 150).Draw(rt, "pause")) * time.Millisecond)
			if rapid.Bool().Draw(rt, "due") {
				due()
			}
		}
		for range rapid.IntRange(0, 40).Draw(rt, "before") {
			step()
		}
		subscribed := len(events)
		var pages []*wire.RosterReply
		for after := ""; ; {
			page := r.Page(after, rapid.IntRange(1, 3).Draw(rt, "limit"))
			pages = append(pages, page)
			if after = page.Next; after == "" {
				break
			}
			for range rapid.IntRange(0, 5).Draw(rt, "between") {
				step()
			}
		}
		for range rapid.IntRange(0, 20).Draw(rt, "after") {
			step()
		}
		now = now.Add(time.Second)
		due()
		var w watcher
		w.snapshot(pages)
		for _, e := range events[subscribed:] {
			w.event(e)
		}
		want := map[string]wire.RosterEntry{}
		for _, e := range r.Page("", 1000).Entries {
			want[e.Principal] = e
		}
		ignoreSeen := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".SeenMS" }, cmp.Ignore())
		ignoreTS := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".TS" }, cmp.Ignore())
		if diff := cmp.Diff(want, w.entries, ignoreSeen, ignoreTS); diff != "" || w.hole {
			rt.Fatalf("watcher differs from the roster (hole %v):\n%s", w.hole, diff)
		}
	})
}

func TestRosterTellsChangesOnly(t *testing.T) {
	t.Parallel()
	r := delivery.NewRoster()
	ada := lifecycle("ada")
	now := time.Now()
	rec := presence(ada, wire.StatusIdle, "")
	events := 0
	for range 1000 {
		now = now.Add(wire.HeartbeatInterval)
		rec.TS = now.UnixMilli()
		r.Heard(ada.Principal, rec, now)
		more, again := r.Due(now)
		events += len(more)
		if !again.IsZero() {
			t.Fatal("something waits after a heartbeat")
		}
	}
	equal(t, "events of 1,000 heartbeats", events, 1)
	page := r.Page("", 10)
	equal(t, "last seen", page.Entries[0].SeenMS, now.UnixMilli())
}

func TestRosterSaysWhenOneWent(t *testing.T) {
	t.Parallel()
	r := delivery.NewRoster()
	ada := lifecycle("ada")
	heard := time.UnixMilli(1_700_000_000_000)
	went := heard.Add(2 * time.Second)
	r.Heard(ada.Principal, presence(ada, wire.StatusIdle, ""), heard)
	r.Due(heard)
	equal(t, "gone of who is there", r.Page("", 10).Entries[0].GoneMS, 0)
	r.Left(ada.Principal, went)
	events, _ := r.Due(went)
	for _, e := range []wire.RosterEntry{*events[0].Entry, r.Page("", 10).Entries[0]} {
		equal(t, "gone", e.GoneMS, went.UnixMilli())
		equal(t, "last seen", e.SeenMS, heard.UnixMilli())
	}
}

func TestRosterSpacesOutWhoFlaps(t *testing.T) {
	t.Parallel()
	r := delivery.NewRoster()
	ada := lifecycle("ada")
	start := time.Now()
	events := 0
	var last wire.RosterEvent
	for i := range 1000 { // a second of a change each millisecond
		now := start.Add(time.Duration(i) * time.Millisecond)
		r.Heard(ada.Principal, presence(ada, wire.StatusWorking, fmt.Sprint(i)), now)
		more, _ := r.Due(now)
		events += len(more)
	}
	more, _ := r.Due(start.Add(time.Second + delivery.Spacing))
	for _, e := range more {
		events++
		last = e
	}
	if most := int(time.Second/delivery.Spacing) + 1; events > most {
		t.Errorf("events of 1,000 changes in a second = %d, want at most %d", events, most)
	}
	if last.Entry == nil || last.Entry.Presence.Activity != "999" {
		t.Errorf("last event = %+v, want the last state", last)
	}
}

func TestRosterPagesBySize(t *testing.T) {
	t.Parallel()
	r := delivery.NewRoster()
	now := time.Now()
	const members = 900
	for i := range members {
		l := lifecycle(fmt.Sprintf("a%04d", i))
		rec := presence(l, wire.StatusIdle, "")
		rec.Card.Description = fmt.Sprintf("%03000d", i)
		r.Heard(l.Principal, rec, now)
	}
	r.Due(now)
	seen, pages := 0, 0
	for after := ""; ; pages++ {
		p := r.Page(after, wire.MaxRosterPage)
		data, err := json.Marshal(p)
		if err != nil || len(data) > wire.MaxPage {
			t.Fatalf("page of %d bytes, %v, want at most %d", len(data), err, wire.MaxPage)
		}
		equal(t, "total", p.Total, members)
		seen += len(p.Entries)
		if after = p.Next; after == "" {
			break
		}
	}
	if seen != members || pages < 4 {
		t.Errorf("%d entries on %d pages, want %d on several", seen, pages+1, members)
	}
}
