package delivery_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/internal/header/headertest"
	"github.com/cotal-go/cotal/wire"
)

// listen collects roster events but for the signs of life.
func (m *mesh) listen(t testing.TB) (events func() []wire.RosterEvent, alive func() int) {
	t.Helper()
	filter, err := wire.EventFilter(lab, wire.DeliveryEndpoint, wire.TopicRoster)
	if err != nil {
		t.Fatal(err)
	}
	ch := make(chan *nats.Msg, 1<<14)
	sub, err := m.nc.ChanSubscribe(filter, ch)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	m.flush(t)
	signs := 0
	events = func() []wire.RosterEvent {
		t.Helper()
		m.flush(t)
		var out []wire.RosterEvent
		for range len(ch) {
			var e wire.RosterEvent
			if err := json.Unmarshal((<-ch).Data, &e); err != nil {
				t.Fatal(err)
			}
			if e.Kind == wire.RosterAlive {
				signs++
				continue
			}
			out = append(out, e)
		}
		return out
	}
	return events, func() int { return signs }
}

// bubble runs fn in fake time and ends all that the mesh started in it.
func bubble(t *testing.T, fn func(t *testing.T, m *mesh)) {
	t.Helper()
	emptyPools()
	defer emptyPools()
	faketime.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Second) }) // after its end the broker's stores finish what they write
		fn(t, newMesh(t))
	})
}

// emptyPools drops what the NATS client keeps in a sync.Pool: a timer of one bubble must not meet another. A pool is
// empty after two collections.
func emptyPools() {
	runtime.GC()
	runtime.GC()
}

func TestHeartbeatsCostAWatcherNothing(t *testing.T) {
	bubble(t, func(t *testing.T, m *mesh) {
		m.serve(t, nil)
		events, alive := m.listen(t)
		const members = 50
		var lives []wire.Lifecycle
		for i := range members {
			lives = append(lives, lifecycle(fmt.Sprintf("a%02d", i)))
		}
		for beat := range 20 { // a thousand heartbeats
			for _, l := range lives {
				m.beat(t, l, wire.StatusIdle, "")
			}
			time.Sleep(wire.HeartbeatInterval)
			got := events()
			if beat == 0 && len(got) != members || beat > 0 && len(got) > 0 {
				t.Fatalf("beat %d caused %d events: %+v", beat, len(got), got)
			}
		}
		if got, want := alive(), int(20*wire.HeartbeatInterval/delivery.AliveInterval); got < want-1 || got > want+1 {
			t.Errorf("signs of life = %d, want about %d whatever the number of heartbeats", got, want)
		}
		m.beat(t, lives[7], wire.StatusWorking, "thinking")
		time.Sleep(time.Second)
		got := events()
		if len(got) != 1 || got[0].Sequence != members+1 || got[0].Entry.Presence.Activity != "thinking" {
			t.Errorf("events after one change = %+v, want one of number %d", got, members+1)
		}
	})
}

func TestSilenceIsOfflineAfterTheLivenessWindow(t *testing.T) {
	bubble(t, func(t *testing.T, m *mesh) {
		m.serve(t, nil)
		c := m.caller(t, lifecycle("watcher"))
		events, _ := m.listen(t)
		dead, left, live := lifecycle("dead"), lifecycle("left"), lifecycle("live")
		for _, l := range []wire.Lifecycle{dead, left, live} {
			m.beat(t, l, wire.StatusWorking, "")
		}
		time.Sleep(time.Second)
		m.beat(t, left, wire.StatusOffline, "")
		wentSilent := time.Now().Add(-time.Second)
		for time.Since(wentSilent) < wire.LivenessWindow {
			roster := ask[wire.RosterReply](t, c, wire.CommandRoster, nil)
			for _, e := range roster.Entries {
				if e.Principal == "local.dead" && e.Gone != "" {
					t.Fatalf("called offline %s after the last heartbeat", time.Since(wentSilent))
				}
			}
			m.beat(t, live, wire.StatusWorking, "")
			time.Sleep(500 * time.Millisecond)
		}
		m.beat(t, live, wire.StatusWorking, "")
		time.Sleep(1500 * time.Millisecond)
		got := map[string]string{}
		for _, e := range ask[wire.RosterReply](t, c, wire.CommandRoster, nil).Entries {
			got[e.Principal] = string(e.Presence.Status) + " " + e.Gone
		}
		want := map[string]string{"local.dead": "offline silent", "local.left": "offline left", "local.live": "working "}
		for who, state := range want {
			equal(t, who, got[who], state)
		}
		var changes []string
		for _, e := range events() {
			changes = append(changes, fmt.Sprintf("%d %s %s%s", e.Sequence, e.Entry.Principal, e.Entry.Presence.Status, e.Entry.Gone))
		}
		wantChanges := "1 local.dead working, 2 local.left working, 3 local.live working, 4 local.left offlineleft, 5 local.dead offlinesilent"
		equal(t, "events", strings.Join(changes, ", "), wantChanges)

		// It comes back, as another life, and nobody stays listed for ever.
		m.beat(t, lifecycle("dead"), wire.StatusIdle, "")
		time.Sleep(time.Second)
		if back := events(); len(back) != 1 || back[0].Entry.Gone != "" {
			t.Errorf("events of a return = %+v, want one that is not offline", back)
		}
		time.Sleep(delivery.KeepGone + time.Minute)
		removed := 0
		for _, e := range events() {
			if e.Kind == wire.RosterRemove {
				removed++
			}
		}
		equal(t, "removals", removed, 3)
		equal(t, "listed", ask[wire.RosterReply](t, c, wire.CommandRoster, nil).Total, 0)
	})
}

func TestASnapshotHasWhoWasThereBefore(t *testing.T) {
	bubble(t, func(t *testing.T, m *mesh) {
		early := lifecycle("early")
		m.beat(t, early, wire.StatusWaiting, "")
		m.flush(t)
		time.Sleep(time.Second)
		m.serve(t, nil)
		c := m.caller(t, lifecycle("watcher"))
		roster := ask[wire.RosterReply](t, c, wire.CommandRoster, nil)
		if len(roster.Entries) != 1 || roster.Entries[0].Presence.Status != wire.StatusWaiting || roster.Sequence != 0 {
			t.Fatalf("roster = %+v, want early at sequence 0", roster)
		}
		// It never beats again: the window counts from its last heartbeat and from the start of the view.
		time.Sleep(wire.LivenessWindow + 2*time.Second)
		roster = ask[wire.RosterReply](t, c, wire.CommandRoster, nil)
		equal(t, "gone", roster.Entries[0].Gone, wire.GoneSilent)
	})
}

func TestRecordsThatLieAreDropped(t *testing.T) {
	bubble(t, func(t *testing.T, m *mesh) {
		stop := m.serve(t, nil)
		ada, eve := lifecycle("ada"), lifecycle("eve")
		m.beat(t, ada, wire.StatusIdle, "")
		of := func(l wire.Lifecycle) string {
			s, err := wire.PresenceSubject(lab, l.Principal)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		asAda, err := json.Marshal(presence(ada, wire.StatusWorking, "forged"))
		if err != nil {
			t.Fatal(err)
		}
		subject := strings.Replace(of(eve), "local.eve", "other.eve", 1)
		for where, body := range map[string]string{
			of(eve):                        string(asAda),                       // another's card
			of(ada):                        `{"stream":"CHAT_lab","seq":7}`,     // an acknowledgement the broker was made to send
			subject:                        string(asAda),                       // an owner nobody has
			of(lifecycle("big")):           strings.Repeat(" ", 40<<10),         // too large
			of(lifecycle("deep")):          strings.Repeat(`{"a":`, 100) + "1",  // too deep
			of(lifecycle("twice")):         `{"status":"idle","status":"idle"}`, // doubled key
			"$KV.cotal_presence_lab2.a.b":  "{}",
			"$KV.cotal_presence_lab.a.b.c": "{}",
		} {
			if err := m.nc.Publish(where, []byte(body)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		c := m.caller(t, lifecycle("watcher"))
		check := func(when string) {
			t.Helper()
			roster := ask[wire.RosterReply](t, c, wire.CommandRoster, nil)
			for _, e := range roster.Entries {
				if e.Principal != "local.ada" || e.Presence.Activity == "forged" {
					t.Errorf("%s: roster lists %s %q", when, e.Principal, e.Presence.Activity)
				}
			}
		}
		check("heard")
		stop()
		m.serve(t, nil) // reads the same from the bucket
		check("read")
	})
}

// A record whose header block cannot be read hides nobody else's silence and keeps no delivery from starting.
func TestRecordsWithHiddenHeadersAreDropped(t *testing.T) {
	bubble(t, func(t *testing.T, m *mesh) {
		stop := m.serve(t, nil)
		ada, eve := lifecycle("ada"), lifecycle("eve")
		subject, err := wire.PresenceSubject(lab, eve.Principal)
		if err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(presence(eve, wire.StatusIdle, "hidden"))
		if err != nil {
			t.Fatal(err)
		}
		raw := headertest.Dial(t, m.srv, nil)
		c := m.caller(t, lifecycle("watcher"))
		check := func(when, gone string) {
			t.Helper()
			roster := ask[wire.RosterReply](t, c, wire.CommandRoster, nil)
			if len(roster.Entries) != 1 || roster.Entries[0].Principal != "local.ada" || roster.Entries[0].Gone != gone || roster.StaleSince != 0 {
				t.Errorf("%s: roster = %+v, want ada alone, gone %q, not stale", when, roster, gone)
			}
		}
		m.beat(t, ada, wire.StatusIdle, "")
		raw.Publish(t, subject, "NATS/1.0\r\nnocolon\r\n\r\n", body)
		check("heard", "")
		for range 2 * wire.LivenessWindow / time.Second { // ada is silent, eve is not
			raw.Publish(t, subject, "NATS/1.0\r\nNats-Subject: x\r\n\r\ny: z\r\n\r\n", body)
			raw.Publish(t, subject, "NATS/1.0 404\r\n\r\nsome: more lines\r\n\r\n", body)
			time.Sleep(time.Second)
		}
		check("silent", wire.GoneSilent)
		stop()
		m.beat(t, ada, wire.StatusIdle, "")
		m.serve(t, nil) // reads the same from the bucket
		check("read", "")
	})
}

// A delivery that hears nothing, since the broker does not answer, calls nobody offline and says since when.
func TestStaleViewCallsNobodyOffline(t *testing.T) {
	bubble(t, func(t *testing.T, m *mesh) {
		cut := &cutter{srv: m.srv}
		nc, err := nats.Connect("", nats.InProcessServer(cut), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.ReconnectBufSize(-1))
		if err != nil {
			t.Fatal(err)
		}
		d := delivery.New(nc, lab, nil)
		stop, done := runIn(d)
		<-d.Ready()
		ada := lifecycle("ada")
		beats := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
				m.beat(t, ada, wire.StatusIdle, "")
			}
		}
		beats(3 * time.Second)
		lastGood := time.Now()
		cut.off()
		beats(30 * time.Second)
		page, err := delivery.PageOf(d)
		if err != nil || page.StaleSince == 0 || len(page.Entries) != 1 || page.Entries[0].Gone != "" {
			t.Fatalf("roster while cut off = %+v, %v, want ada not gone, and stale", page, err)
		}
		if since := time.UnixMilli(page.StaleSince); since.Before(lastGood.Add(-2*time.Second)) || since.After(lastGood.Add(time.Second)) {
			t.Errorf("stale since %s, was cut off at %s", since, lastGood)
		}
		if err := delivery.FreshOf(d); err == nil {
			t.Error("health says the roster is fresh while cut off")
		}
		cut.on()
		beats(5 * time.Second)
		page, err = delivery.PageOf(d)
		if err != nil || page.StaleSince != 0 || page.Entries[0].Gone != "" {
			t.Errorf("roster after the cut = %+v, %v, want ada and fresh", page, err)
		}
		time.Sleep(3 * wire.LivenessWindow)
		if page, _ = delivery.PageOf(d); page.Entries[0].Gone != wire.GoneSilent {
			t.Errorf("roster after real silence = %+v, want ada gone", page)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		nc.Close()
	})
}

func TestAnInstanceThatStopsSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, m *mesh) {
		stop := m.serve(t, nil)
		events, _ := m.listen(t)
		m.beat(t, lifecycle("ada"), wire.StatusIdle, "")
		time.Sleep(time.Second)
		stop()
		got := events()
		if len(got) != 2 || got[1].Kind != wire.RosterEnd || got[1].Sequence != 1 {
			t.Errorf("events = %+v, want a change and the end at sequence 1", got)
		}
	})
}

func TestRosterOfAThousand(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	events, _ := m.listen(t)
	const members = 1000
	start := time.Now()
	for i := range members {
		m.beat(t, lifecycle(fmt.Sprintf("a%04d", i)), wire.StatusIdle, "")
	}
	c := m.caller(t, lifecycle("watcher"))
	var told []wire.RosterEvent
	for deadline := time.Now().Add(10 * time.Second); len(told) < members && time.Now().Before(deadline); {
		told = append(told, events()...)
	}
	equal(t, "events", len(told), members)
	t.Logf("1,000 joins told in %s", time.Since(start))
	seen := map[string]bool{}
	start = time.Now()
	for after := ""; ; {
		page := ask[wire.RosterReply](t, c, wire.CommandRoster, wire.RosterRequest{After: after})
		for _, e := range page.Entries {
			seen[e.Principal] = true
		}
		if after = page.Next; after == "" {
			break
		}
	}
	t.Logf("snapshot of 1,000 in %s", time.Since(start))
	equal(t, "principals", len(seen), members)
	if _, err := try[wire.RosterReply](t, c, wire.CommandRoster, wire.RosterRequest{Limit: wire.MaxRosterPage + 1}); wire.CodeOf(err) != wire.CodeBadRequest {
		t.Errorf("limit above the bound = %v, want bad-request", err)
	}
}

// Watchers that start at any moment, with two instances serving, end with what the roster says: each follows the
// instance that answered it.
func TestWatchersConvergeWithTwoInstances(t *testing.T) {
	bubble(t, func(t *testing.T, m *mesh) {
		m.serve(t, &delivery.Options{Instance: "one"})
		m.serve(t, &delivery.Options{Instance: "two"})
		filter, err := wire.EventFilter(lab, wire.DeliveryEndpoint, wire.TopicRoster)
		if err != nil {
			t.Fatal(err)
		}
		type follower struct {
			watcher
			instance string
			events   chan *nats.Msg
		}
		var followers []*follower
		follow := func() {
			f := &follower{events: make(chan *nats.Msg, 1<<14)}
			sub, err := m.nc.ChanSubscribe(filter, f.events)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = sub.Unsubscribe() })
			f.instance = []string{"one", "two"}[len(followers)%2]
			var page wire.RosterReply
			target := control.Target{Endpoint: wire.DeliveryEndpoint, Command: wire.CommandRoster, Instance: f.instance}
			if err := m.caller(t, lifecycle("watcher")).Call(ctxFor(t), target, nil, &page); err != nil {
				t.Fatal(err)
			}
			f.snapshot([]*wire.RosterReply{&page})
			followers = append(followers, f)
		}
		lives := make([]wire.Lifecycle, 20)
		for i := range lives {
			lives[i] = lifecycle(fmt.Sprintf("a%02d", i))
		}
		statuses := []wire.Status{wire.StatusIdle, wire.StatusWorking, wire.StatusWaiting, wire.StatusOffline}
		for round := range 40 {
			for i, l := range lives {
				if (round+i)%7 != 0 { // some miss a beat
					m.beat(t, l, statuses[(round*i)%len(statuses)], fmt.Sprint(round*i/30))
				}
			}
			if round%4 == 0 {
				follow()
			}
			time.Sleep(370 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		m.flush(t)
		want := map[string]string{}
		for _, e := range ask[wire.RosterReply](t, m.caller(t, lifecycle("judge")), wire.CommandRoster, nil).Entries {
			want[e.Principal] = fmt.Sprintf("%s %s %s", e.Presence.Status, e.Presence.Activity, e.Gone)
		}
		for i, f := range followers {
			for range len(f.events) {
				msg := <-f.events
				subject, err := wire.ParseEventSubject(msg.Subject)
				if err != nil {
					t.Fatal(err)
				}
				var e wire.RosterEvent
				if err := json.Unmarshal(msg.Data, &e); err != nil {
					t.Fatal(err)
				}
				if subject.Instance == f.instance && e.Kind != wire.RosterAlive {
					f.event(e)
				}
			}
			if f.hole || len(f.entries) != len(want) {
				t.Errorf("follower %d: hole %v, %d entries, want %d", i, f.hole, len(f.entries), len(want))
			}
			for name, e := range f.entries {
				equal(t, fmt.Sprintf("follower %d: %s", i, name), fmt.Sprintf("%s %s %s", e.Presence.Status, e.Presence.Activity, e.Gone), want[name])
			}
		}
	})
}
