package space_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

func post(t testing.TB, js jetstream.JetStream, channel string, n int) {
	t.Helper()
	for i := range n {
		from := lifecycle(fmt.Sprintf("a%d", i%3)).Principal
		must(js.Publish(t.Context(), must(wire.ChannelSubject(lab, from, channel))(t), []byte("x")))(t)
	}
}

func wantCleared(t *testing.T, js jetstream.JetStream, pattern string, after uint64, want ...wire.Loss) {
	t.Helper()
	got, err := space.Cleared(t.Context(), js, lab, pattern, after)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cleared of %q after %d (-want +got):\n%s", pattern, after, diff)
	}
}

func cleared(channel string, from, to, count uint64) wire.Loss {
	return wire.Loss{SequenceRange: wire.SequenceRange{From: from, To: to}, Reason: wire.LossCleared, Channel: channel, Count: count}
}

func TestClearHistory(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	clearChannel := func(channel string, want uint64) {
		t.Helper()
		if n, err := space.ClearHistory(ctx, js, lab, channel); err != nil || n != want {
			t.Errorf("ClearHistory(%s) = %d, %v, want %d", channel, n, err, want)
		}
	}
	clearChannel("team", 0)
	wantCleared(t, js, ">", 0)
	post(t, js, "team", 4)    // 1 to 4
	post(t, js, "team.a", 2)  // 5, 6
	post(t, js, "general", 1) // 7
	clearChannel("team", 4)   // not team.a
	clearChannel("team", 0)   // nothing there: no further mark
	post(t, js, "team", 1)    // 8
	clearChannel("team", 1)   //
	clearChannel("team.a", 2) //
	clearChannel("elsewhere", 0)
	if st := must(space.State(ctx, js, wire.ChatStream(lab)))(t); st.Msgs != 1 || st.FirstSeq != 7 {
		t.Errorf("%d messages from %d left, want the one of general, 7", st.Msgs, st.FirstSeq)
	}
	wantCleared(t, js, "team", 0, cleared("team", 1, 7, 4), cleared("team", 8, 8, 1))
	wantCleared(t, js, "team", 3, cleared("team", 4, 7, 4), cleared("team", 8, 8, 1))
	wantCleared(t, js, "team", 7, cleared("team", 8, 8, 1))
	wantCleared(t, js, "team", 8)
	wantCleared(t, js, "*", 7, cleared("team", 8, 8, 1))
	wantCleared(t, js, "team.>", 0, cleared("team.a", 5, 8, 2))
	wantCleared(t, js, ">", 7, cleared("team", 8, 8, 1), cleared("team.a", 8, 8, 2))
	wantCleared(t, js, "general", 0)

	for _, bad := range []string{"", "*", "team.>", "a..b", wire.DefaultsKey} {
		if _, err := space.ClearHistory(ctx, js, lab, bad); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("ClearHistory(%q) = %v, want bad-request", bad, err)
		}
	}
	if _, err := space.Cleared(ctx, js, lab, "a..b", 0); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("Cleared of no pattern = %v, want bad-request", err)
	}
}

// A call that ends after its mark, before or after the messages went, is finished by the next one.
func TestClearHistoryIsFinishedByTheNextCall(t *testing.T) {
	t.Parallel()
	for _, purged := range []bool{false, true} {
		js := newSpace(t)
		ctx := ctxFor(t)
		post(t, js, "team", 3)
		mark := map[string]any{"v": 1, "channel": "team", "cleared": []map[string]any{{"from": 1, "to": 3, "count": 3, "atMs": 1, "open": true}}}
		must(js.Publish(ctx, wire.RecordPrefix(wire.CursorsBucket(lab))+wire.ClearedKey+"."+space.PatternKey("team"), must(json.Marshal(mark))(t)))(t)
		wantCleared(t, js, "team", 0, cleared("team", 1, 3, 3)) // announced counts: the messages may be gone
		want := uint64(3)
		if purged {
			if err := must(js.Stream(ctx, wire.ChatStream(lab)))(t).Purge(ctx); err != nil {
				t.Fatal(err)
			}
			want = 0
		}
		for _, want := range []uint64{want, 0} {
			if n, err := space.ClearHistory(ctx, js, lab, "team"); err != nil || n != want {
				t.Errorf("purged %v: ClearHistory = %d, %v, want %d", purged, n, err, want)
			}
		}
		wantCleared(t, js, "team", 0, cleared("team", 1, 3, 3))
	}
}

func TestManyClearingsTakeNoMoreRoom(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	for range 40 {
		post(t, js, "team", 1)
		if _, err := space.ClearHistory(ctxFor(t), js, lab, "team"); err != nil {
			t.Fatal(err)
		}
	}
	all, err := space.Cleared(ctxFor(t), js, lab, "team", 0)
	if err != nil || len(all) != 32 || all[0].From != 1 || all[0].To != 9 || all[0].Count != 9 || all[31].To != 40 {
		t.Errorf("cleared = %d ranges from %+v, %v; want 32, the first nine taken together", len(all), all[0], err)
	}
}
