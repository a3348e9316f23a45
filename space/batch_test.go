package space_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/internal/header/headertest"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

func TestReadGivesTheBrokersWordWhateverHeadersSay(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	ada := must(wire.ChannelSubject(lab, lifecycle("ada").Principal, "general"))(t)
	forged := must(wire.ChannelSubject(lab, lifecycle("boss").Principal, "general"))(t)
	send := func(body string, headers map[string]string) {
		m := nats.NewMsg(ada)
		m.Data = []byte(body)
		for k, v := range headers {
			m.Header.Set(k, v)
		}
		must(js.PublishMsg(ctx, m))(t)
	}
	send("first", nil)
	send("forged", map[string]string{"Nats-Subject": forged, "Nats-Sequence": "77", "Nats-Time-Stamp": "1999-01-01T00:00:00Z", "Nats-Last-Sequence": "9", "Nats-Num-Pending": "0"})
	send("", map[string]string{"Status": "204", "Description": "EOB"})
	send("", map[string]string{"Status": "503"})
	send("", map[string]string{"Status": "404", "Description": "Message Not Found"})
	send("last", nil)

	var got []string
	rest, err := space.Read(ctx, js, wire.ChatStream(lab), space.Query{Filter: ada}, func(m *space.Stored) error {
		if m.Subject != ada || time.Since(m.Time) > time.Hour {
			t.Errorf("message %d has subject %q of %s", m.Sequence, m.Subject, m.Time)
		}
		got = append(got, fmt.Sprintf("%d %s", m.Sequence, m.Data))
		return nil
	})
	want := []string{"1 first", "2 forged", "3 ", "4 ", "5 ", "6 last"}
	if err != nil || !slices.Equal(got, want) || rest != (space.Rest{Next: 7}) {
		t.Errorf("Read = %q, %+v, %v, want %q", got, rest, err, want)
	}
}

func TestReadByBatches(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	const total = 2345
	subjects := []string{
		must(wire.ChannelSubject(lab, lifecycle("ada").Principal, "general"))(t),
		must(wire.ChannelSubject(lab, lifecycle("bob").Principal, "other"))(t),
	}
	for i := range total {
		must(js.PublishAsync(subjects[i%2], fmt.Appendf(nil, "%d", i), jetstream.WithStallWait(time.Minute)))(t)
	}
	<-js.PublishAsyncComplete()
	filter := must(wire.ChannelFilter(lab, "general"))(t)

	var got int
	rest, err := space.Read(ctx, js, wire.ChatStream(lab), space.Query{Filter: filter, From: 1, Limit: 10}, func(*space.Stored) error { got++; return nil })
	if want := (space.Rest{Next: 20, Pending: (total+1)/2 - 10}); err != nil || got != 10 || rest != want {
		t.Errorf("batch of 10 = %d, %+v, %v, want %+v", got, rest, err, want)
	}
	got = 0
	if err := space.Scan(ctx, js, wire.ChatStream(lab), filter, func(m *space.Stored) error {
		if want := fmt.Sprint(2 * got); string(m.Data) != want {
			t.Fatalf("message %d is %q, want %q", got, m.Data, want)
		}
		got++
		return nil
	}); err != nil || got != (total+1)/2 {
		t.Errorf("Scan = %d messages, %v, want %d", got, err, (total+1)/2)
	}
	rest, err = space.Read(ctx, js, wire.ChatStream(lab), space.Query{Filter: filter, From: total + 1}, func(*space.Stored) error { t.Error("message after the end"); return nil })
	if want := (space.Rest{Next: total + 1}); err != nil || rest != want {
		t.Errorf("after the end = %+v, %v, want %+v", rest, err, want)
	}
	stop := errors.New("enough")
	if _, err := space.Read(ctx, js, wire.ChatStream(lab), space.Query{Filter: filter}, func(*space.Stored) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("error of the callback = %v, want it back", err)
	}
	if _, err := space.Read(ctx, js, "NOPE", space.Query{Filter: filter}, nil); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("stream that is not there = %v, want unavailable", err)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := space.Read(done, js, wire.ChatStream(lab), space.Query{Filter: filter}, nil); !errors.Is(err, wire.ErrDeadline) {
		t.Errorf("ended context = %v, want deadline-exceeded", err)
	}
}

// hidden are header blocks of a publisher that keep the client from reading what the broker appends.
var hidden = map[string]string{
	"no colon":     "NATS/1.0\r\nnocolon\r\n\r\n",
	"not found":    "NATS/1.0 404\r\n\r\nx: y\r\n\r\n",
	"nobody there": "NATS/1.0 503\r\n\r\nx: y\r\n\r\n",
	"end mark":     "NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 1\r\n\r\nx: y\r\n\r\n",
	"own numbers": "NATS/1.0\r\nNats-Subject: cotal.lab.chat.local.boss.general\r\nNats-Sequence: 2\r\nNats-Last-Sequence: 1\r\n" +
		"Nats-Time-Stamp: 2026-01-01T00:00:00Z\r\nNats-Num-Pending: 1\r\n\r\nx: y\r\n\r\n",
}

func TestReadLeavesOutWhatHidesTheBrokersWord(t *testing.T) {
	t.Parallel()
	for name, block := range hidden {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			js, srv := newSpaceOn(t)
			ctx := ctxFor(t)
			raw := headertest.Dial(t, srv, nil)
			ada := must(wire.ChannelSubject(lab, lifecycle("ada").Principal, "general"))(t)
			// Hidden, good, hidden, hidden, good, hidden.
			for i, good := range []bool{false, true, false, false, true, false} {
				if good {
					must(js.Publish(ctx, ada, fmt.Appendf(nil, "%d", i+1)))(t)
				} else {
					raw.Publish(t, ada, block, []byte("hidden"))
				}
			}
			for must(space.State(ctx, js, wire.ChatStream(lab)))(t).LastSeq < 6 { // the last one has no answer to wait for
			}
			for limit, want := range map[int]struct {
				got  string
				left int
				rest space.Rest
			}{
				0: {"2 2, 5 5", 4, space.Rest{Next: 7}},
				1: {"", 1, space.Rest{Next: 2, Pending: 5}},
				2: {"2 2", 1, space.Rest{Next: 3, Pending: 4}},
				3: {"2 2", 2, space.Rest{Next: 4, Pending: 3}},
			} {
				var got []string
				var left, size int
				rest, err := space.Read(ctx, js, wire.ChatStream(lab), space.Query{Filter: ada, Limit: limit, From: 1, Unreadable: func(n int) { left++; size += n }},
					func(m *space.Stored) error {
						got = append(got, fmt.Sprintf("%d %s", m.Sequence, m.Data))
						return nil
					})
				if s := strings.Join(got, ", "); err != nil || s != want.got || left != want.left || rest != want.rest {
					t.Errorf("limit %d: Read = %q, %d left out, %+v, %v, want %+v", limit, s, left, rest, err, want)
				}
				if size < left*len(block) {
					t.Errorf("limit %d: %d left out weigh %d", limit, left, size)
				}
			}
			n := 0
			if err := space.Scan(ctx, js, wire.ChatStream(lab), ada, func(*space.Stored) error { n++; return nil }); err != nil || n != 2 {
				t.Errorf("Scan = %d messages, %v, want 2", n, err)
			}
		})
	}
}
