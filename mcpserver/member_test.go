package mcpserver_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/mcpserver"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// What an agent has joined itself goes on in its next process, and what it has left does not.
func TestMembershipsGoOn(t *testing.T) {
	m := cotaltest.New(t, nil)
	bob := m.Endpoint(t, "bob", nil)
	opts := mcpserver.Options{Join: []string{"team"}}
	ada := newAgent(t, m, "ada", setup{opts: opts})
	for _, ch := range []string{"dev", "dev.*", "ops"} {
		ada.call(t, "cotal_join", args{"channel": ch})
	}
	ada.call(t, "cotal_leave", args{"channel": "ops"})
	ada.stop()
	for _, ch := range []string{"dev", "dev.x", "ops"} {
		post(t, bob, ch, endpoint.Text("while away, to "+ch))
	}
	next := newAgent(t, m, "ada", setup{creds: ada.creds, opts: opts})
	if card := next.call(t, "cotal_orient", nil); !strings.Contains(card, "you have joined: #dev, #dev.*, #team\n") {
		t.Errorf("card:\n%s", card)
	}
	post(t, bob, "dev", endpoint.Text("now"))
	text := next.has(t, "| while away, to dev\n", "| while away, to dev.x\n", "| now\n")
	if strings.Contains(text, "to ops") {
		t.Errorf("a channel that was left comes still:\n%s", text)
	}
	next.call(t, "cotal_inbox", args{"ack": pageOf(text)})
	next.call(t, "cotal_leave", args{"channel": "dev"})
	next.stop()
	last := newAgent(t, m, "ada", setup{creds: ada.creds, opts: opts})
	if card := last.call(t, "cotal_orient", nil); !strings.Contains(card, "you have joined: #dev.*, #team\n") {
		t.Errorf("card:\n%s", card)
	}
}

// A membership that this process does not receive, such as that of a call that was cancelled, is ended all the same.
func TestLeaveWhatIsNotReceived(t *testing.T) {
	m := cotaltest.New(t, nil)
	ada := newAgent(t, m, "ada", setup{})
	for _, discard := range []bool{false, true} {
		own, err := ada.ep.Join(t.Context(), "dev", func(*endpoint.Delivery) {}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := own.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if out := ada.call(t, "cotal_leave", args{"channel": "dev", "discard": discard}); !strings.HasPrefix(out, "left #dev; what you had not read of it ") {
			t.Error(out)
		}
		ada.refuse(t, "not-found", "cotal_leave", args{"channel": "dev"})
	}
	ada.refuse(t, "not-found", "cotal_leave", args{"channel": "never"})
	ada.refuse(t, "bad-request", "cotal_leave", args{"channel": "no/channel"})
}

// While nobody says what an agent is a member of, it is told so, and the memberships go on once somebody does.
func TestMembershipsGoOnLate(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, &cotaltest.Options{DeliveryElsewhere: true})
		stop := m.ServeDelivery(t)
		bob := m.Endpoint(t, "bob", nil)
		ada := newAgent(t, m, "ada", setup{})
		ada.call(t, "cotal_join", args{"channel": "dev"})
		ada.stop()
		stop()
		post(t, bob, "dev", endpoint.Text("while away"))
		next := newAgent(t, m, "ada", setup{creds: ada.creds})
		if card := next.call(t, "cotal_orient", nil); !strings.Contains(card, "- which channels you are a member of is not known yet; ") || !strings.Contains(card, "you have joined: nothing\n") {
			t.Errorf("card:\n%s", card)
		}
		time.Sleep(time.Minute)
		m.ServeDelivery(t)
		time.Sleep(time.Minute)
		next.has(t, "| while away\n")
	})
}

// A channel that is left after the memberships were listed, and before it is its turn to go on, stays left.
func TestLeftIsNotRejoined(t *testing.T) {
	m := cotaltest.New(t, nil)
	ada := newAgent(t, m, "ada", setup{})
	ada.call(t, "cotal_join", args{"channel": "dev"})
	ada.call(t, "cotal_leave", args{"channel": "dev"})
	if err := ada.s.Rejoin(t.Context(), "dev"); err != nil {
		t.Fatal(err)
	}
	ada.refuse(t, "not-found", "cotal_leave", args{"channel": "dev"})
}

// Of a channel that is left with what is unread nothing is shown any more, also not what waited for room, until it is joined again.
func TestLeaveDiscardsWhatWaitsForRoom(t *testing.T) {
	for _, twice := range []bool{false, true} {
		t.Run(fmt.Sprintf("left_before_%v", twice), func(t *testing.T) {
			m := cotaltest.New(t, nil)
			bob := m.Endpoint(t, "bob", nil)
			ada := newAgent(t, m, "ada", setup{opts: mcpserver.Options{Join: []string{"team"}}})
			for i := range 8 {
				post(t, bob, "team", endpoint.Text(fmt.Sprint("m", i, " ")+strings.Repeat("x", 200<<10)))
			}
			ada.has(t, "more of #team with the broker")
			if twice {
				ada.call(t, "cotal_leave", args{"channel": "team"})
			}
			ada.call(t, "cotal_leave", args{"channel": "team", "discard": true})
			ada.call(t, "cotal_join", args{"channel": "team"})
			post(t, bob, "team", endpoint.Text("afterwards"))
			if text := ada.has(t, "| afterwards\n"); strings.Count(text, "#team from") != 1 {
				t.Errorf("shown after it was dropped:\n%.2000s", text)
			}
		})
	}
}

// A channel whose class is live ends for the agent when it leaves it.
func TestLeaveLiveChannel(t *testing.T) {
	m := cotaltest.New(t, &cotaltest.Options{Space: &space.Options{DefaultClass: wire.ClassLive}})
	bob := m.Endpoint(t, "bob", nil)
	const live = "chat"
	ada := newAgent(t, m, "ada", setup{opts: mcpserver.Options{Join: []string{live}}})
	post(t, bob, live, endpoint.Text("the first"))
	ada.has(t, "| the first\n")
	ada.call(t, "cotal_leave", args{"channel": live})
	post(t, bob, live, endpoint.Text("the second"))
	direct(t, bob, ada.ep, endpoint.Text("after it"))
	if text := ada.has(t, "| after it\n"); strings.Contains(text, "| the second\n") {
		t.Errorf("a channel that was left comes still:\n%s", text)
	}
	ada.refuse(t, "not-found", "cotal_leave", args{"channel": live})
}
