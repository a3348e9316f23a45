package delivery_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// grantAs gives l an active grant, changed as the test likes.
func (m *mesh) grantAs(t testing.TB, l wire.Lifecycle, change func(*trust.Grant)) uint64 {
	t.Helper()
	g := trust.Grant{
		Ver: trust.GrantVersion, Owner: l.Owner, Actor: l.Actor, UID: l.UID, Epoch: 1, Kind: trust.KindStatic,
		State: trust.GrantActive, CreatedAt: time.Now().UTC(), By: "test",
	}
	if change != nil {
		change(&g)
	}
	rev, err := m.grants.Create(ctxFor(t), g)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// to makes a message to a principal, role or channel.
func to(from wire.Principal, target any, id string) *wire.Message {
	msg := &wire.Message{
		ID: id, TS: 1, Space: lab, From: wire.EndpointRef{ID: from.String(), Name: from.Actor}, Parts: []wire.Part{wire.Text("hello")},
	}
	switch target := target.(type) {
	case wire.Principal:
		msg.To = target.String()
	case string:
		msg.ToService = target
	}
	return msg
}

// subjectOf is the subject that a message belongs on.
func subjectOf(t testing.TB, from wire.Principal, msg *wire.Message) string {
	t.Helper()
	var subject string
	var err error
	switch {
	case msg.To != "":
		p, perr := wire.ParsePrincipal(msg.To)
		if perr != nil {
			t.Fatal(perr)
		}
		subject, err = wire.DirectSubject(lab, p, from)
	case msg.ToService != "":
		subject, err = wire.RoleSubject(lab, msg.ToService, from)
	default:
		subject, err = wire.ChannelSubject(lab, from, msg.Channel)
	}
	if err != nil {
		t.Fatal(err)
	}
	return subject
}

// send stores a message and returns its sequence.
func (m *mesh) send(t testing.TB, from wire.Principal, msg *wire.Message) uint64 {
	t.Helper()
	ack, err := m.js.Publish(ctxFor(t), subjectOf(t, from, msg), encode(t, msg))
	if err != nil {
		t.Fatal(err)
	}
	return ack.Sequence
}

// crowd stores many messages without waiting for each.
func (m *mesh) crowd(t testing.TB, n int, make func(i int) (wire.Principal, *wire.Message)) {
	t.Helper()
	for i := range n {
		from, msg := make(i)
		if _, err := m.js.PublishAsync(subjectOf(t, from, msg), encode(t, msg)); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 999 {
			<-m.js.PublishAsyncComplete()
		}
	}
	<-m.js.PublishAsyncComplete()
}

// A message is found by its id alone, more others of its sender around it than one request looks at, and by no one else.
func TestFindAmongMany(t *testing.T) {
	bubble(t, func(t *testing.T, m *mesh) {
		m.serve(t, nil)
		ada, bob, eve := lifecycle("ada"), lifecycle("bob"), lifecycle("eve")
		for _, l := range []wire.Lifecycle{ada, bob, eve} {
			m.grantAs(t, l, nil)
		}
		others := func(i int) (wire.Principal, *wire.Message) {
			from := ada.Principal
			if i%4 == 0 {
				from = wire.Principal{Owner: wire.LocalOwner, Actor: fmt.Sprintf("a%d", i%50)}
			}
			return from, to(from, bob.Principal, wire.NewID())
		}
		m.crowd(t, 30_000, others)
		time.Sleep(time.Second)
		m.crowd(t, 100, others)
		id := wire.NewID()
		sequence := m.send(t, ada.Principal, to(ada.Principal, bob.Principal, id))
		m.crowd(t, 30_000, others)
		for _, l := range []wire.Lifecycle{ada, bob} {
			r := ask[wire.ReceiptReply](t, m.caller(t, l), wire.CommandReceipt, wire.ReceiptRequest{ID: id})
			if r.Sequence != sequence || r.Sender != "local.ada" || r.To != "local.bob" || r.Stage != wire.StageStored {
				t.Errorf("receipt for %s = %+v, want message %d", l.Principal, r, sequence)
			}
		}
		stranger := m.caller(t, eve)
		_, err := try[wire.ReceiptReply](t, stranger, wire.CommandReceipt, wire.ReceiptRequest{ID: id})
		never := wire.NewID()
		_, err2 := try[wire.ReceiptReply](t, stranger, wire.CommandReceipt, wire.ReceiptRequest{ID: never})
		if !errors.Is(err, wire.ErrNotFound) || !errors.Is(err2, wire.ErrNotFound) || strings.ReplaceAll(err.Error(), id, never) != err2.Error() {
			t.Errorf("a stranger hears of a message that is there: %v\nof one that never was: %v\nwant the same not-found", err, err2)
		}
		if r := ask[wire.ReceiptReply](t, stranger, wire.CommandTrace, wire.TraceRequest{ID: id}); r.Sequence != sequence {
			t.Errorf("trace = %+v, want message %d", r, sequence)
		}
	})
}

// A message that its sender kept for a while before it could be stored is found all the same.
func TestFindWhatWasStoredLate(t *testing.T) {
	bubble(t, func(t *testing.T, m *mesh) {
		m.serve(t, nil)
		ada, bob := lifecycle("ada"), lifecycle("bob")
		m.grantAs(t, ada, nil)
		m.grantAs(t, bob, nil)
		for _, wait := range []time.Duration{-time.Minute, 10 * time.Second, 10 * time.Minute, time.Hour} {
			id := wire.NewID()
			if time.Sleep(max(wait, 0)); wait < 0 { // the sender's clock is ahead
				id = idAt(t, time.Now().Add(-wait))
			}
			sequence := m.send(t, ada.Principal, to(ada.Principal, bob.Principal, id))
			if r := ask[wire.ReceiptReply](t, m.caller(t, bob), wire.CommandReceipt, wire.ReceiptRequest{ID: id}); r.Sequence != sequence {
				t.Errorf("stored %s after its id was made: receipt = %+v, want %d", wait, r, sequence)
			}
		}
	})
}

// idAt is an id as somebody makes it whose clock shows that time.
func idAt(t testing.TB, at time.Time) string {
	t.Helper()
	const digits = "0123456789abcdefghjkmnpqrstvwxyz"
	id := []byte(wire.NewID())
	for i, ms := 8, at.UnixMilli(); i >= 0; i, ms = i-1, ms>>5 {
		id[i] = digits[ms&31]
	}
	if got, ok := wire.IDTime(string(id)); !ok || got.UnixMilli() != at.UnixMilli() {
		t.Fatalf("id %s is of %s, want %s", id, got, at)
	}
	return string(id)
}

// An id that names no time is looked for from the newest messages backwards, within bounds.
func TestFindAnIDWithoutATime(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada, bob := lifecycle("ada"), lifecycle("bob")
	m.grantAs(t, ada, nil)
	m.grantAs(t, bob, nil)
	c := m.caller(t, ada)
	old := m.send(t, ada.Principal, to(ada.Principal, bob.Principal, "the old one"))
	find := func(in wire.ReceiptRequest) (wire.ReceiptReply, error) {
		return try[wire.ReceiptReply](t, c, wire.CommandReceipt, in)
	}
	m.crowd(t, 3000, func(int) (wire.Principal, *wire.Message) {
		return ada.Principal, to(ada.Principal, bob.Principal, wire.NewID())
	})
	if r, err := find(wire.ReceiptRequest{ID: "the old one"}); err != nil || r.Sequence != old {
		t.Errorf("an old message = %+v, %v, want %d", r, err, old)
	}
	began := time.Now()
	m.crowd(t, 22_000, func(int) (wire.Principal, *wire.Message) {
		return ada.Principal, to(ada.Principal, bob.Principal, wire.NewID())
	})
	recent := m.send(t, ada.Principal, to(ada.Principal, bob.Principal, "the new one"))
	if r, err := find(wire.ReceiptRequest{ID: "the new one"}); err != nil || r.Sequence != recent {
		t.Errorf("a new message = %+v, %v, want %d", r, err, recent)
	}
	_, err := find(wire.ReceiptRequest{ID: "the old one"})
	if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.CodeNotFound || e.Details["complete"] != false || !strings.Contains(e.Message, "kind and sequence") {
		t.Errorf("beyond the bound: %v, want not-found that says that not everything was looked at", err)
	}
	if r, err := find(wire.ReceiptRequest{ID: "the old one", Kind: "direct", Sequence: old}); err != nil || r.Sequence != old {
		t.Errorf("by its place = %+v, %v, want %d", r, err, old)
	}
	if r, err := find(wire.ReceiptRequest{ID: "the old one", Since: began.Add(-time.Minute).UnixMilli()}); err != nil || r.Sequence != old {
		t.Errorf("by its time = %+v, %v, want %d", r, err, old)
	}
	if _, err := find(wire.ReceiptRequest{ID: "no such id", Kind: "role"}); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("what never was: %v, want not-found", err)
	}
}

// Who may know of a message is decided by the grant at the moment of the question.
func TestFindWhatIsTheCallers(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada, bob, eve := lifecycle("ada"), lifecycle("bob"), lifecycle("eve")
	m.grantAs(t, ada, func(g *trust.Grant) { g.AllowPublish = []string{">"} })
	m.grantAs(t, bob, func(g *trust.Grant) { g.Role, g.AllowSubscribe = "reviewer", []string{"team.*"} })
	rev := m.grantAs(t, eve, func(g *trust.Grant) {
		g.Role, g.AllowSubscribe = "cook", []string{"a", "b", "c", "d", "e", "f", "g", "h", "team.>"}
	})
	post := message(ada.Principal, "team.x", "hello")
	job := to(ada.Principal, "reviewer", wire.NewID())
	m.send(t, ada.Principal, post)
	m.send(t, ada.Principal, job)
	knows := func(l wire.Lifecycle, id string, want bool) {
		t.Helper()
		r, err := try[wire.ReceiptReply](t, m.caller(t, l), wire.CommandReceipt, wire.ReceiptRequest{ID: id})
		if want && (err != nil || r.ID != id) || !want && !errors.Is(err, wire.ErrNotFound) {
			t.Errorf("receipt of %s for %s = %+v, %v, want it known %t", id, l.Principal, r, err, want)
		}
	}
	knows(ada, post.ID, true)
	knows(bob, post.ID, true)
	knows(eve, post.ID, true)
	knows(ada, job.ID, true)
	knows(bob, job.ID, true)
	knows(eve, job.ID, false)

	g, _, err := m.grants.Get(ctxFor(t), eve.Principal)
	if err != nil {
		t.Fatal(err)
	}
	g.AllowSubscribe = []string{"a"}
	if rev, err = m.grants.Update(ctxFor(t), g, rev); err != nil {
		t.Fatal(err)
	}
	knows(eve, post.ID, false)
	g.State = trust.GrantRetiring
	if _, err = m.grants.Update(ctxFor(t), g, rev); err != nil {
		t.Fatal(err)
	}
	if _, err := try[wire.ReceiptReply](t, m.caller(t, eve), wire.CommandReceipt, wire.ReceiptRequest{ID: post.ID}); !errors.Is(err, wire.ErrPermissionDenied) {
		t.Errorf("receipt for somebody who was revoked: %v, want permission-denied", err)
	}
}

// What merely looks like the message is not it.
func TestFindIsNotFooled(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada, bob := lifecycle("ada"), lifecycle("bob")
	m.grantAs(t, ada, nil)
	m.grantAs(t, bob, nil)
	id := wire.NewID()
	msg := to(ada.Principal, bob.Principal, id)
	subject := subjectOf(t, ada.Principal, msg)
	put := func(body string) uint64 {
		ack, err := m.js.Publish(ctxFor(t), subject, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return ack.Sequence
	}
	put(id)
	put(`{"id":"` + id + `"}`)
	quoted := to(ada.Principal, bob.Principal, wire.NewID())
	quoted.Parts = []wire.Part{wire.Text("about " + id)}
	m.send(t, ada.Principal, quoted)
	put(strings.Replace(string(encode(t, msg)), "local.ada", "local.eve", 1))
	c := m.caller(t, ada)
	if r, err := try[wire.ReceiptReply](t, c, wire.CommandReceipt, wire.ReceiptRequest{ID: id}); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("receipt = %+v, %v, want not-found", r, err)
	}
	want := put(strings.Replace(string(encode(t, msg)), id, fmt.Sprintf(`\u%04x`, id[0])+id[1:], 1))
	if r := ask[wire.ReceiptReply](t, c, wire.CommandReceipt, wire.ReceiptRequest{ID: id}); r.Sequence != want {
		t.Errorf("receipt of a message whose id is written with an escape = %+v, want %d", r, want)
	}
	for _, in := range []wire.ReceiptRequest{{}, {ID: strings.Repeat("x", wire.MaxID+1)}, {ID: id, Sequence: 1}, {ID: id, Kind: "live"}, {ID: id, Since: -1}} {
		if _, err := try[wire.ReceiptReply](t, c, wire.CommandReceipt, in); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("receipt %+v: %v, want bad-request", in, err)
		}
	}
}
