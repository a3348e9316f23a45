package header_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/cotal-go/cotal/internal/header"
	"github.com/cotal-go/cotal/internal/header/headertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// appended is what the broker adds to the live copy of a stored message, with the shortest names and numbers there are.
const appended = "Nats-Stream: CHAT_x\r\nNats-Subject: cotal.x.chat.local.a.c\r\nNats-Sequence: 1\r\n" +
	"Nats-Time-Stamp: 2026-01-01T00:00:00Z\r\nNats-Last-Sequence: 0\r\n\r\n"

func TestWhole(t *testing.T) {
	w := newWire(t)
	// many is n lines of a publisher, each as short as the client reads it.
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%c:\n", 'A'+i)
		}
		return b.String()
	}
	for _, tc := range []struct {
		name, block string
		want        bool
	}{
		{"no_block", "", true},
		{"empty_block", "NATS/1.0\r\n\r\n", true},
		{"broker_alone", "NATS/1.0\r\n" + appended, true},
		{"with_publishers", "NATS/1.0\r\nNats-Msg-Id: 1\r\nA: b\r\nA: c\r\n" + appended, true},
		{"without_space", "NATS/1.0\r\nNats-Msg-Id:1\r\n" + appended, true},
		{"end_mark", "NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 7\r\n\r\n", true},
		{"no_results", "NATS/1.0 404 Message Not Found\r\n\r\n", true},
		{"no_responders", "NATS/1.0 503\r\n\r\n", true},
		{"as_many_as_allowed", "NATS/1.0\r\n" + many(header.MaxValues-5) + appended, true},

		{"ended_early", "NATS/1.0\r\nNats-Sequence: 9\r\n\r\nX: y\r\n" + appended, false},
		{"ended_at_once", "NATS/1.0\r\n\r\n" + appended, false},
		{"ended_by_line_feed", "NATS/1.0\n\n" + appended, false},
		{"no_colon", "NATS/1.0\r\nnocolon\r\n" + appended, false},
		{"no_version", "HTTP/1.1\r\nA: b\r\n" + appended, false},
		{"status_ended_early", "NATS/1.0 404\r\n\r\nx:y\r\n" + appended, false},
		{"end_mark_ended_early", "NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 7\r\n\r\nx:y\r\n" + appended, false},
		{"short_status", "NATS/1.0 4\r\n" + appended, false},
		{"paid_for_by_short_lines", "NATS/1.0 404 x\n" + many(header.MaxValues-2) + "\n" + appended, false},
		{"paid_for_by_too_many", "NATS/1.0 404 x\n" + many(header.MaxValues+30) + "\n" + appended, false},
		{"too_many", "NATS/1.0\r\n" + many(header.MaxValues-4) + appended, false},
		{"surplus_spaces", "NATS/1.0\r\nA:    b\r\n" + appended, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := w.echo(t, tc.block)
			if got := header.Whole(m); got != tc.want {
				t.Errorf("Whole(%q) = %v, want %v; the client read %q", tc.block, got, tc.want, m.Header)
			}
		})
	}
}

// FuzzWhole looks for a block of a publisher that hides the broker's word and passes.
func FuzzWhole(f *testing.F) {
	for _, block := range []string{"NATS/1.0\r\n\r\n", "NATS/1.0\r\nA: b\r\n\r\n", "NATS/1.0 404 x\n\nx:y\r\n\r\n", "NATS/1.0\na:\nb:\n\nc"} {
		f.Add(block)
	}
	f.Fuzz(func(t *testing.T, block string) {
		if len(block) < 2 {
			return
		}
		block = block[:len(block)-2] + appended // as the broker does
		h, err := nats.DecodeHeadersMsg([]byte(block))
		if err != nil {
			h = nil
		}
		if !header.Fits(len(block), h) {
			return
		}
		for name, want := range map[string]string{"Nats-Sequence": "1", "Nats-Last-Sequence": "0", "Nats-Time-Stamp": "2026-01-01T00:00:00Z"} {
			if vs := h[name]; len(vs) == 0 || vs[len(vs)-1] != want {
				t.Errorf("block %q passes with %s = %q, want %q last", block, name, vs, want)
			}
		}
	})
}

func BenchmarkWhole(b *testing.B) {
	m := newWire(b).echo(b, "NATS/1.0\r\nNats-Msg-Id: 01HZZZZZZZZZZZZZZZZZZZZZZZ\r\n"+appended)
	b.ReportAllocs()
	for b.Loop() {
		if !header.Whole(m) {
			b.Fatal("not whole")
		}
	}
}

// wire is a broker between a publisher who writes bytes and the client that the project uses.
type wire struct {
	raw *headertest.Conn
	sub *nats.Subscription
}

func newWire(tb testing.TB) *wire {
	tb.Helper()
	srv, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true})
	if err != nil {
		tb.Fatal(err)
	}
	srv.Start()
	tb.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	closed := make(chan struct{})
	nc, err := nats.Connect("", nats.InProcessServer(srv), nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // the client reports what it cannot read
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { nc.Close(); <-closed })
	sub, err := nc.SubscribeSync("echo")
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		tb.Fatal(err)
	}
	return &wire{raw: headertest.Dial(tb, srv, nil), sub: sub}
}

// echo publishes a header block as it is and returns what the client makes of it.
func (w *wire) echo(tb testing.TB, block string) *nats.Msg {
	tb.Helper()
	w.raw.Publish(tb, "echo", block, []byte("body"))
	m, err := w.sub.NextMsg(5 * time.Second)
	if err != nil {
		tb.Fatalf("echo %q: %v", block, err)
	}
	return m
}
