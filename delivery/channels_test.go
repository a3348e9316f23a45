package delivery_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// listing renders a channel list, one line a channel.
func listing(r wire.ChannelsReply) string {
	var out []string
	for _, c := range r.Channels {
		count := "-"
		if c.Messages != nil {
			count = fmt.Sprint(*c.Messages)
		}
		line := fmt.Sprintf("%s %s r%v w%v", c.Channel, count, c.Readable, c.Writable)
		if c.Config != nil {
			line += " " + c.Config.Description
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

func TestChannelsCountOnlyWithinTheReadList(t *testing.T) {
	bubble(t, func(t *testing.T, m *mesh) {
		m.serve(t, nil)
		ada := lifecycle("ada")
		_, rev := m.grant(t, ada, "general", "team.>")
		c := m.caller(t, ada)
		channels := space.NewChannels(m.js, lab)
		for name, cfg := range map[string]wire.ChannelConfig{
			"general": {Description: "all", ReplayWindow: "2h"}, "board": {Description: "closed"}, "team.new": {DeliveryClass: "live"},
		} {
			if _, err := channels.Set(ctxFor(t), name, cfg, nil); err != nil {
				t.Fatal(err)
			}
		}
		for i, sender := range []string{"ada", "bob", "carol"} {
			for _, ch := range []string{"general", "board", "team.a", "secret"} {
				for range i + 1 {
					m.post(t, wire.Principal{Owner: wire.LocalOwner, Actor: sender}, ch, "x")
				}
			}
		}
		// Subjects that no sender can have used do not name a channel.
		if _, err := m.js.Publish(ctxFor(t), "cotal.lab.chat.other.eve.team.x", []byte("x")); err != nil {
			t.Fatal(err)
		}
		got := ask[wire.ChannelsReply](t, c, wire.CommandChannels, nil)
		equal(t, "channels", listing(got), "board - rfalse wfalse closed\ngeneral 6 rtrue wtrue all\nteam.a 6 rtrue wfalse\nteam.new 0 rtrue wfalse ")
		equal(t, "default class", got.Defaults.DeliveryClass, "durable")
		general, team := got.Channels[1], got.Channels[3]
		equal(t, "window", general.ReplayWindowMS, (2 * time.Hour).Milliseconds())
		equal(t, "class", general.DeliveryClass+" "+team.DeliveryClass, "durable live")

		// Without a grant the configured ones are listed, bare.
		bare := ask[wire.ChannelsReply](t, m.caller(t, lifecycle("stranger")), wire.CommandChannels, nil)
		equal(t, "of a stranger", listing(bare), "board - rfalse wfalse closed\ngeneral - rfalse wfalse all\nteam.new - rfalse wfalse ")

		time.Sleep(2 * time.Second) // counts are given out for a second
		g, _, err := m.grants.Get(ctxFor(t), ada.Principal)
		if err != nil {
			t.Fatal(err)
		}
		g.AllowSubscribe = []string{"secret"}
		if _, err := m.grants.Update(ctxFor(t), g, rev); err != nil {
			t.Fatal(err)
		}
		m.post(t, ada.Principal, "secret", "y")
		narrowed := ask[wire.ChannelsReply](t, c, wire.CommandChannels, nil)
		equal(t, "after a change of the grant", listing(narrowed),
			"board - rfalse wfalse closed\ngeneral - rfalse wtrue all\nsecret 7 rtrue wfalse\nteam.new - rfalse wfalse ")
	})
}

func TestChannelsByPages(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada := lifecycle("ada")
	m.grant(t, ada, ">")
	c := m.caller(t, ada)
	channels := space.NewChannels(m.js, lab)
	var want []string
	for i := range 120 { // the largest records: several pages by size
		name := fmt.Sprintf("c%03d", i)
		cfg := wire.ChannelConfig{Description: strings.Repeat("é", 200), Instructions: strings.Repeat("\u0001", 2000)}
		if _, err := channels.Set(ctxFor(t), name, cfg, nil); err != nil {
			t.Fatal(err)
		}
		want = append(want, name)
	}
	for _, limit := range []int{0, 7} {
		var got []string
		pages := 0
		for after := ""; ; {
			page := ask[wire.ChannelsReply](t, c, wire.CommandChannels, wire.ChannelsRequest{After: after, Limit: limit})
			for _, ch := range page.Channels {
				got = append(got, ch.Channel)
			}
			pages++
			if after = page.Next; after == "" {
				break
			}
		}
		if !slices.Equal(got, want) || pages < 3 {
			t.Errorf("limit %d: %d channels on %d pages, want %d on several", limit, len(got), pages, len(want))
		}
	}
	if _, err := try[wire.ChannelsReply](t, c, wire.CommandChannels, wire.ChannelsRequest{Limit: -1}); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("negative limit = %v, want bad-request", err)
	}
}

func TestChannelSet(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	c := m.caller(t, lifecycle("operator"))
	set := func(in wire.ChannelSetRequest) (wire.ChannelSetReply, error) {
		return try[wire.ChannelSetReply](t, c, wire.CommandChannelSet, in)
	}
	first, err := set(wire.ChannelSetRequest{Channel: "team.a", Config: &wire.ChannelConfig{ReplayWindow: "1d"}, Revision: space.Revision(0)})
	if err != nil || first.Revision == 0 || first.ReplayWindowMS != (24*time.Hour).Milliseconds() || first.DeliveryClass != "durable" {
		t.Fatalf("set = %+v, %v", first, err)
	}
	for name, tc := range map[string]struct {
		in   wire.ChannelSetRequest
		want error
	}{
		"stale":         {wire.ChannelSetRequest{Channel: "team.a", Config: &wire.ChannelConfig{}, Revision: space.Revision(0)}, wire.ErrConflict},
		"pattern":       {wire.ChannelSetRequest{Channel: "team.>", Config: &wire.ChannelConfig{}}, wire.ErrBadRequest},
		"bad_window":    {wire.ChannelSetRequest{Channel: "a", Config: &wire.ChannelConfig{ReplayWindow: "soon"}}, wire.ErrBadRequest},
		"no_class":      {wire.ChannelSetRequest{Channel: wire.DefaultsKey, Config: &wire.ChannelConfig{}}, wire.ErrBadRequest},
		"remove_all":    {wire.ChannelSetRequest{Channel: wire.DefaultsKey}, wire.ErrPrecondition},
		"remove_stale":  {wire.ChannelSetRequest{Channel: "team.a", Revision: space.Revision(first.Revision + 9)}, wire.ErrConflict},
		"remove_absent": {wire.ChannelSetRequest{Channel: "nope"}, nil},
	} {
		if _, err := set(tc.in); !errors.Is(err, tc.want) {
			t.Errorf("%s = %v, want %v", name, err, tc.want)
		}
	}
	if _, err := set(wire.ChannelSetRequest{Channel: wire.DefaultsKey, Config: &wire.ChannelConfig{DeliveryClass: "live"}}); err != nil {
		t.Fatal(err)
	}
	gone, err := set(wire.ChannelSetRequest{Channel: "team.a", Revision: &first.Revision})
	if err != nil || gone.Revision != 0 || gone.ReplayWindowMS != 0 || gone.DeliveryClass != "live" {
		t.Errorf("removal = %+v, %v, want what the defaults say", gone, err)
	}
}

func TestEnrolIsForOpenSpaces(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	stop := m.serve(t, nil)
	ada := lifecycle("ada")
	c := m.caller(t, ada)
	if _, err := try[wire.EnrolReply](t, c, wire.CommandEnrol, nil); !errors.Is(err, wire.ErrUnimplemented) {
		t.Errorf("enrol where grants decide = %v, want unimplemented", err)
	}
	stop()
	m.serve(t, &delivery.Options{Open: true})
	for range 2 {
		got := ask[wire.EnrolReply](t, c, wire.CommandEnrol, wire.EnrolRequest{Role: "reviewer"})
		equal(t, "queues", strings.Join(got.Queues, " "), wire.DirectDurable(ada)+" svc_reviewer")
	}
	if _, err := m.js.Consumer(ctxFor(t), wire.DirectStream(lab), wire.DirectDurable(ada)); err != nil {
		t.Error(err)
	}
	if _, err := try[wire.EnrolReply](t, c, wire.CommandEnrol, wire.EnrolRequest{Role: "a.b"}); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("enrol with a bad role = %v, want bad-request", err)
	}
	m.post(t, ada.Principal, "general", "hello")
	page := ask[wire.HistoryReply](t, c, wire.CommandHistory, wire.HistoryRequest{Channel: "general"})
	equal(t, "messages without a grant in an open space", len(page.Messages), 1)
}

// A grant that cannot be read is our trouble: the caller is refused without its content.
func TestAnUnreadableGrantPermitsNothing(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada := lifecycle("ada")
	m.grant(t, ada, ">")
	subject := wire.RecordPrefix(wire.AuthorityBucket(lab)) + "grant.local.ada"
	if _, err := m.js.Publish(ctxFor(t), subject, []byte(`{"ver":1,"private":"thing"}`)); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{wire.CommandHistory, wire.CommandChannels} {
		var args any
		if command == wire.CommandHistory {
			args = wire.HistoryRequest{Channel: "general"}
		}
		_, err := try[map[string]any](t, m.caller(t, ada), command, args)
		if !errors.Is(err, wire.ErrInternal) || strings.Contains(err.Error(), "private") {
			t.Errorf("%s = %v, want internal without the record", command, err)
		}
	}
}

func TestHealthIsALiveAnswer(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, &delivery.Options{Instance: "one", Version: "v1"})
	c := m.caller(t, lifecycle("probe"))
	h, err := c.Health(ctxFor(t), wire.DeliveryEndpoint, time.Second, 1)
	if err != nil || len(h) != 1 || !h[0].Ready || h[0].Instance != "one" || len(h[0].Checks) < 3 {
		t.Fatalf("health = %+v, %v, want one ready instance with the checks of roster, mentions and history", h, err)
	}
	if err := m.js.DeleteStream(ctxFor(t), wire.ChatStream(lab)); err != nil {
		t.Fatal(err)
	}
	if _, err := try[wire.HistoryReply](t, c, wire.CommandHistory, wire.HistoryRequest{Channel: "a"}); !errors.Is(err, wire.ErrPermissionDenied) {
		t.Errorf("history = %v", err)
	}
}

// Whoever may publish on a wildcard decides how many channels there are; a list stays bounded.
func TestChannelsStayBoundedWhenThereAreTooMany(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada := lifecycle("ada")
	m.grant(t, ada, ">")
	c := m.caller(t, ada)
	if _, err := space.NewChannels(m.js, lab).Set(ctxFor(t), "general", wire.ChannelConfig{}, nil); err != nil {
		t.Fatal(err)
	}
	for i := range 20_001 {
		subject, err := wire.ChannelSubject(lab, ada.Principal, fmt.Sprintf("flood.%d", i))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.nc.Publish(subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	m.flush(t)
	m.post(t, ada.Principal, "general", "x")
	got := ask[wire.ChannelsReply](t, c, wire.CommandChannels, nil)
	equal(t, "channels", listing(got), "general 1 rtrue wtrue ")
	equal(t, "partial", got.Partial, true)
}
