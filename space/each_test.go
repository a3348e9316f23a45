package space_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/internal/header/headertest"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

func TestReadEachTellsWhatIsThereGoneAndUnreadable(t *testing.T) {
	t.Parallel()
	js, srv := newSpaceOn(t)
	ctx := ctxFor(t)
	ada := must(wire.ChannelSubject(lab, lifecycle("ada").Principal, "general"))(t)
	for i := range 300 {
		must(js.Publish(ctx, ada, fmt.Appendf(nil, "%d", i+1)))(t)
	}
	headertest.Dial(t, srv, nil).Publish(t, ada, "NATS/1.0\r\nnocolon\r\n\r\n", []byte("hidden")) // 301
	st := must(js.Stream(ctx, wire.ChatStream(lab)))(t)
	if err := st.DeleteMsg(ctx, 7); err != nil {
		t.Fatal(err)
	}
	var asked []uint64
	for seq := uint64(302); seq > 0; seq-- {
		asked = append(asked, seq)
	}
	got := map[uint64]string{}
	err := space.ReadEach(ctx, js, wire.ChatStream(lab), asked, func(i int, m *space.Stored, gone bool) error {
		switch {
		case m != nil:
			got[asked[i]] = string(m.Data)
			if m.Sequence != asked[i] || m.Subject != ada {
				t.Errorf("asked for %d, got %d of %q", asked[i], m.Sequence, m.Subject)
			}
		case gone:
			got[asked[i]] = "gone"
		default:
			got[asked[i]] = "unreadable"
		}
		return nil
	})
	if err != nil || len(got) != 302 {
		t.Fatalf("ReadEach = %d answers, %v, want 302", len(got), err)
	}
	for seq, want := range map[uint64]string{1: "1", 7: "gone", 300: "300", 301: "unreadable", 302: "gone"} {
		if got[seq] != want {
			t.Errorf("message %d = %q, want %q", seq, got[seq], want)
		}
	}
	stop := errors.New("enough")
	if err := space.ReadEach(ctx, js, wire.ChatStream(lab), asked, func(int, *space.Stored, bool) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("error of the callback = %v, want it back", err)
	}
	if err := space.ReadEach(ctx, js, "NOPE", asked, nil); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("stream that is not there = %v, want unavailable", err)
	}
	if err := space.ReadEach(ctx, js, "NOPE", nil, nil); err != nil {
		t.Errorf("nothing asked for = %v", err)
	}
}

func TestBoundsAndTheLeadersWord(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	ada := must(wire.ChannelSubject(lab, lifecycle("ada").Principal, "general"))(t)
	other := must(wire.ChannelSubject(lab, lifecycle("ada").Principal, "other"))(t)
	for i := range 6 {
		must(js.Publish(ctx, []string{ada, other}[i%2], nil))(t)
	}
	st := must(js.Stream(ctx, wire.ChatStream(lab)))(t)
	if err := st.Purge(ctx, jetstream.WithPurgeSequence(3)); err != nil {
		t.Fatal(err)
	}
	if b := must(space.BoundsOf(ctx, js, wire.ChatStream(lab)))(t); b != (space.Bounds{First: 3, Last: 6, Replicas: 1}) {
		t.Errorf("bounds = %+v", b)
	}
	filter := must(wire.ChannelFilter(lab, "general"))(t)
	for from, want := range map[uint64]uint64{1: 3, 3: 3, 4: 5, 6: 0} {
		if got := must(space.NextAtLeader(ctx, js, wire.ChatStream(lab), filter, from))(t); got != want {
			t.Errorf("next from %d = %d, want %d", from, got, want)
		}
	}
	if _, err := space.BoundsOf(ctx, js, "NOPE"); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("bounds of no stream = %v, want failed-precondition", err)
	}
}
