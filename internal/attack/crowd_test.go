package attack_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// firstDirect connects the holder of creds and returns the text of the first direct message it is given.
func firstDirect(t *testing.T, ep *endpoint.Endpoint) string {
	t.Helper()
	got := make(chan string, 1)
	if err := ep.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
		if err := d.Ack(t.Context()); err != nil {
			t.Errorf("ack: %v", err)
		}
		select {
		case got <- d.Sender.String() + ": " + d.Message.Text():
		default:
		}
	}); err != nil {
		t.Fatal(err)
	}
	return <-got
}

// TestPushOutUnreadMessages shows that no member makes others' accepted, unread direct messages disappear: neither by
// filling the space with its own, nor by having the broker store its acknowledgements under their subject. Who finds the
// space full is told so.
func TestPushOutUnreadMessages(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, &cotaltest.Options{Space: &space.Options{Sizes: space.Sizes{Direct: 2 << 20}}})
	carol := m.Endpoint(t, "carol", nil)
	bob := m.Credentials(t, "bob", nil)
	if _, err := carol.Direct(t.Context(), bob.Identity().Principal, endpoint.Text("unread")); err != nil {
		t.Fatal(err)
	}
	mallory := m.Credentials(t, "mallory", nil)
	in := intrude(t, m, mallory)
	post := must[string](t)(wire.ChannelSubject(m.Space(), in.id.Principal, "general"))
	victim := must[string](t)(wire.DirectSubject(m.Space(), bob.Identity().Principal, carol.Principal()))
	for range 50_000 { // each makes the broker store its acknowledgement as if carol had written to bob
		if err := in.nc.PublishMsg(&nats.Msg{Subject: post, Reply: victim, Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := in.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	ep := m.Connect(t, mallory, nil)
	var err error
	for range 100 {
		if _, err = ep.Direct(t.Context(), ep.Principal(), endpoint.Text(strings.Repeat("x", 200<<10))); err != nil {
			break
		}
	}
	if !errors.Is(err, wire.ErrExhausted) {
		t.Errorf("filling the space = %v, want resource-exhausted", err)
	}
	if got, want := firstDirect(t, m.Connect(t, bob, nil)), "local.carol: unread"; got != want {
		t.Errorf("bob's first message = %q, want %q", got, want)
	}
}

// TestUseUpMessageIDs shows that nobody silences another's message by sending its id first, and that one id reaches two
// addressees.
func TestUseUpMessageIDs(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	ada, bob, carol := m.Endpoint(t, "ada", nil), m.Endpoint(t, "bob", nil), m.Endpoint(t, "carol", nil)
	in := intrude(t, m, m.Credentials(t, "mallory", nil))
	self := must[string](t)(wire.DirectSubject(m.Space(), in.id.Principal, in.id.Principal))
	for _, guess := range []string{"order-17", "local.ada/order-17", "local.ada/local.bob/order-17"} {
		msg := nats.NewMsg(self)
		msg.Header.Set("Nats-Msg-Id", guess)
		if _, err := in.nc.RequestMsg(msg, nats.DefaultTimeout); err != nil {
			t.Fatal(err)
		}
	}
	for _, to := range []*endpoint.Endpoint{bob, carol} {
		d := endpoint.Text("your order")
		d.ID = "order-17"
		r, err := ada.Direct(t.Context(), to.Principal(), d)
		if err != nil || r.Duplicate {
			t.Errorf("send to %s = %+v, %v, want stored", to.Principal(), r, err)
		}
		if got, want := firstDirect(t, to), "local.ada: your order"; got != want {
			t.Errorf("%s got %q, want %q", to.Principal(), got, want)
		}
		if r, err = ada.Direct(t.Context(), to.Principal(), d); err != nil || !r.Duplicate {
			t.Errorf("send again = %+v, %v, want a recognised repetition", r, err)
		}
	}
}

// TestFillWithWorkForNobody shows that work for a role that nobody holds is refused once the space is full, and that an
// operator can see and clear it.
func TestFillWithWorkForNobody(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, &cotaltest.Options{Space: &space.Options{Sizes: space.Sizes{Role: 1 << 20}}})
	mallory, ada := m.Endpoint(t, "mallory", nil), m.Endpoint(t, "ada", nil)
	var err error
	for i := 0; err == nil && i < 100; i++ {
		_, err = mallory.Ask(t.Context(), "nosuchrole", endpoint.Text(fmt.Sprint(i, strings.Repeat("x", 100<<10))))
	}
	if !errors.Is(err, wire.ErrExhausted) {
		t.Fatalf("filling the space = %v, want resource-exhausted", err)
	}
	a := m.Node().Authority()
	work, err := a.Work(t.Context(), m.Space())
	if err != nil || len(work) != 1 || work["nosuchrole"] < 5 {
		t.Fatalf("work = %v, %v, want that of the role that nobody holds", work, err)
	}
	gone, err := a.ClearWork(t.Context(), m.Space(), "nosuchrole")
	if err != nil || gone != work["nosuchrole"] {
		t.Errorf("clear = %d, %v, want %d", gone, err, work["nosuchrole"])
	}
	if _, err := ada.Ask(t.Context(), "reviewer", endpoint.Text("review this")); err != nil {
		t.Errorf("ask after clearing: %v", err)
	}
}
