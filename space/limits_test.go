package space_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// Row 23 of our weaknesses list: one tenant fills all it may, and the other one on the same broker does not notice.
func TestANoisyTenantFillsOnlyItsOwn(t *testing.T) {
	t.Parallel()
	small := &space.Options{Sizes: space.Sizes{
		Chat: 2 << 20, Direct: 2 << 20, Role: 2 << 20, Mention: 1 << 20, Dead: 1 << 20, Presence: 1 << 20, Channels: 1 << 20, Members: 1 << 20, Cursors: 1 << 20, Authority: 1 << 20,
	}}
	disk, memory := small.Footprint()
	limits := tenant{disk, memory, space.Streams, 10}
	both := tenants(t, limits, limits)
	noisy, quiet := both[0], both[1]
	ctx := ctxFor(t)
	for _, js := range both {
		if err := space.Ensure(ctx, js, lab, small); err != nil {
			t.Fatal(err)
		}
	}
	ada := lifecycle("ada")
	chat := must(wire.ChannelSubject(lab, ada.Principal, "general"))(t)
	work := must(wire.RoleSubject(lab, "reviewer", ada.Principal))(t)
	body := make([]byte, 64<<10)
	refused := 0
	for range 100 { // three times what fits
		must(noisy.Publish(ctx, chat, body))(t) // the oldest go
		if _, err := noisy.Publish(ctx, work, body); err != nil {
			refused++ // accepted work stays, more is refused
		}
	}
	if st := must(space.State(ctx, noisy, wire.RoleStream(lab)))(t); refused == 0 || int(st.Msgs) != 100-refused || st.FirstSeq != 1 {
		t.Errorf("role work: %d kept from %d, %d refused; want all that was accepted", st.Msgs, st.FirstSeq, refused)
	}
	if st := must(space.State(ctx, noisy, wire.ChatStream(lab)))(t); st.Bytes > 2<<20 || st.LastSeq != 100 {
		t.Errorf("channel messages: %d bytes up to %d, want at most %d and the newest", st.Bytes, st.LastSeq, 2<<20)
	}
	var err error
	made := 0
	for ; err == nil && made < 100; made++ {
		err = space.EnsureDurables(ctx, noisy, lab, lifecycle(fmt.Sprintf("a%d", made)), "")
	}
	if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.CodeResourceExhausted || made != 11 || fmt.Sprint(e.Details["used"]) != "10" {
		t.Errorf("the queues of %d lifecycles = %v, want resource-exhausted at the eleventh, with the figures", made, err)
	}

	for range 20 {
		must(quiet.Publish(ctx, chat, []byte("hello")))(t)
		must(quiet.Publish(ctx, work, []byte("hello")))(t)
	}
	if err := space.EnsureDurables(ctx, quiet, lab, ada, "reviewer"); err != nil {
		t.Errorf("the other tenant's queues = %v", err)
	}
}

// On fake time, so that no record lapses while the flood is on.
func TestCaseN32PresenceIsCapped(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		srv := broker(t)
		js := connect(t, srv)
		presenceIsCapped(t, js)
		js.Conn().Close()
		srv.Shutdown()
		srv.WaitForShutdown()
	})
}

func presenceIsCapped(t *testing.T, js jetstream.JetStream) {
	ctx := t.Context()
	if err := space.Ensure(ctx, js, lab, &space.Options{Sizes: space.Sizes{Presence: 1 << 20}}); err != nil {
		t.Fatal(err)
	}
	record := func(actor string) (string, []byte) {
		l := lifecycle(actor)
		rec := wire.Presence{Card: wire.Card{ID: l.Principal.String(), Name: actor, Kind: wire.CardAgent}, Status: wire.StatusIdle, LifecycleUID: l.UID, TS: 1}
		return must(wire.PresenceSubject(lab, l.Principal))(t), must(json.Marshal(rec))(t)
	}
	first, heartbeat := record("first")
	must(js.Publish(ctx, first, heartbeat))(t)
	for i := range 100_000 {
		subject, body := record(fmt.Sprintf("a%d", i))
		if err := js.Conn().Publish(subject, body); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 0 { // members go on beating
			if err := js.Conn().Publish(first, heartbeat); err != nil {
				t.Fatal(err)
			}
		}
	}
	flushed, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := js.Conn().FlushWithContext(flushed); err != nil {
		t.Fatal(err)
	}
	subject, body := record("late")
	if _, err := js.Publish(ctx, subject, body); err == nil {
		t.Error("a new principal was taken above the cap")
	}
	if _, err := js.Publish(ctx, first, heartbeat); err != nil {
		t.Errorf("the heartbeat of a known principal at the cap = %v", err)
	}
	st := must(space.State(ctx, js, space.BucketStream(wire.PresenceBucket(lab))))(t)
	if st.Bytes > 1<<20 || st.Msgs < 1000 {
		t.Errorf("presence holds %d records of %d bytes, want as many as fit %d", st.Msgs, st.Bytes, 1<<20)
	}
	must(js.Publish(ctx, must(wire.ChannelSubject(lab, lifecycle("ada").Principal, "general"))(t), []byte("alive")))(t)
}

// A receiver decides how many messages it refuses and what it gives as its reason. Neither pushes out what is noted of other
// queues.
func TestOneQueueCannotPushOutTheNotesOfAnother(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	at := func(l wire.Lifecycle) string {
		return strings.Replace(wire.DeadFilter(wire.DirectStream(lab), wire.DirectDurable(l)), "*", "MSG_TERMINATED", 1)
	}
	quiet, noisy := at(lifecycle("quiet")), at(lifecycle("noisy"))
	must(js.Publish(ctxFor(t), quiet, []byte("{}")))(t)
	reason := make([]byte, 2000)
	for range 20_000 {
		if err := js.Conn().Publish(noisy, reason); err != nil {
			t.Fatal(err)
		}
	}
	must(js.Publish(ctxFor(t), noisy, []byte("{}")))(t) // after all of them
	st := must(space.State(ctxFor(t), js, wire.DeadStream(lab)))(t)
	if st.FirstSeq != 1 || st.Msgs != 1001 {
		t.Errorf("%d notes from %d, want the one of the other queue, 1, and 1000", st.Msgs, st.FirstSeq)
	}
	if _, err := js.Publish(ctxFor(t), noisy, make([]byte, 4<<10)); err == nil {
		t.Error("a note without a bound was stored")
	}
}
