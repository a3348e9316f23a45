package attach

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/internal/term"
	"github.com/cotal-go/cotal/wire"
)

func TestC48DetachKey(t *testing.T) {
	for in, want := range map[string]byte{"ctrl-]": 0x1d, "ctrl-b": 2, "Ctrl-B": 2, "ctrl-\\": 0x1c, "ctrl-_": 0x1f, "ctrl-@": 0, "ctrl-z": 26} {
		k, err := parseKey(in)
		if err != nil || k.code != want {
			t.Errorf("%s: %+v, %v", in, k, err)
		}
	}
	for _, in := range []string{"", "b", "ctrl-", "ctrl-bb", "ctrl-1", "alt-b", "ctrl-c", "ctrl-[", "ctrl-m", "ctrl-i", "ctrl-j", "ctrl-h", "ctrl-é", "^b", "\x1d"} {
		if _, err := parseKey(in); wire.CodeOf(err) != wire.CodeBadRequest {
			t.Errorf("%q: %v", in, err)
		}
	}
	k, err := parseKey("ctrl-]")
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{
		"abc": "abc -", "ab\x1dcd": "ab +", "\x1d": " +", "\x03": "\x03 -", "x\x1b[93;5u": "x +", "x\x1b[93;5:1u": "x +", "x\x1b[93:125;69u": "x +",
		"x\x1b[27;5;93~": "x +", "\x1b[93;5:3u": "\x1b[93;5:3u -", "\x1b[93u": "\x1b[93u -", "\x1b[93;6u": "\x1b[93;6u -", "\x1b[98;5u": "\x1b[98;5u -",
		"\x1b[A": "\x1b[A -", "\x1b[": "\x1b[ -", "\x1b[27;5;98~": "\x1b[27;5;98~ -", "\x1b[999999999999999999999;5u": "\x1b[999999999999999999999;5u -",
	} {
		before, found := k.split([]byte(in))
		got := string(before) + map[bool]string{true: " +", false: " -"}[found]
		if got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add([]byte("x\x1b[93;5u"))
	k, err := parseKey("ctrl-]")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		before, found := k.split(in)
		if !bytes.HasPrefix(in, before) || !found && len(before) != len(in) || bytes.IndexByte(before, k.code) >= 0 {
			t.Fatalf("%q: %q, %v", in, before, found)
		}
	})
}

// TestP15PanicReachesTheTerminalsOwner panics in the goroutines beside the one that owns the terminal: that gets an error, and returns.
func TestP15PanicReachesTheTerminalsOwner(t *testing.T) {
	events, stop := pump(t.Context(), func(context.Context) (endpoint.SessionEvent, error) { panic("boom") })
	defer stop()
	if ev := <-events; wire.CodeOf(ev.err) != wire.CodeInternal || !strings.Contains(ev.err.Error(), "follow the session: boom") {
		t.Errorf("pump: %v", ev.err)
	}
	v := &visit{name: "nova"} // has no manager to ask, which panics
	s, err := v.again(t.Context(), &command.Env{}, &console{}, 0)
	if s != nil || wire.CodeOf(err) != wire.CodeInternal || !strings.HasPrefix(err.Error(), "try again: ") || passing(err) {
		t.Errorf("again: %v, %v", s, err)
	}
}

// far is a session that does what a test says.
type far struct {
	events chan endpoint.SessionEvent
	input  func([]byte) error
	paced  bool
}

func (f far) Next(ctx context.Context) (endpoint.SessionEvent, error) {
	select {
	case ev, ok := <-f.events:
		if !ok {
			return ev, wire.Errorf(wire.CodeUnavailable, "the supervisor is silent")
		}
		return ev, nil
	case <-ctx.Done():
		return endpoint.SessionEvent{}, ctx.Err()
	}
}

func (f far) Input(p []byte) error  { return f.input(p) }
func (f far) Resize(int, int) error { return nil }
func (f far) Repaint() error        { return nil }
func (f far) Paced() bool           { return f.paced }

// piped runs a visit whose input is a pipe of those pieces, at a session over which the test has control. The channel is what it ends with.
func piped(t *testing.T, s far, stays bool, pieces ...string) (events chan endpoint.SessionEvent, ended chan error) {
	t.Helper()
	con := &console{failed: make(chan error, 1), piped: true, plain: &plain{out: io.Discard, notes: io.Discard}}
	con.show, con.pipe.stays = con.plain, stays
	r, w := io.Pipe()
	con.read(t.Context(), r)
	go func() {
		for _, p := range pieces {
			_, _ = io.WriteString(w, p) // nobody reads it after the end
		}
		_ = w.Close()
	}()
	v := &visit{key: detachKey{name: defaultKey}}
	events, ended = make(chan endpoint.SessionEvent), make(chan error, 1)
	s.events = events
	go func() {
		err := v.watch(t.Context(), con, s)
		if doubt := con.pipe.doubt(); err != nil && passing(err) && doubt != nil {
			err = doubt
		}
		ended <- err
	}()
	return events, ended
}

var aSnapshot = endpoint.SessionEvent{Kind: endpoint.SessionSnapshot, Cols: 10, Rows: 2}

// TestPipedInputWaits pipes while the connection is lost, which no event has told yet: it is sent when the terminal is there again.
func TestPipedInputWaits(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		var got []string
		down := true
		events, ended := piped(t, far{input: func(p []byte) error {
			if down {
				return wire.Errorf(wire.CodeUnavailable, "not connected")
			}
			got = append(got, string(p))
			return nil
		}}, false, "one", "two")
		synctest.Wait()
		events <- endpoint.SessionEvent{Kind: endpoint.SessionLost}
		time.Sleep(time.Minute)
		down = false
		events <- aSnapshot
		synctest.Wait()
		if s := strings.Join(got, "+"); s != "one+two" {
			t.Errorf("sent %q, want one+two", s)
		}
		time.Sleep(time.Minute)
		events <- endpoint.SessionEvent{Kind: endpoint.SessionLost} // long after
		events <- aSnapshot
		events <- endpoint.SessionEvent{Kind: endpoint.SessionEnded, Exit: &wire.SessionExit{}}
		if err := <-ended; err != io.EOF {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestPipedInputIsNotLostSilently pipes what the agent does not take, or what was under way when the connection was lost.
func TestPipedInputIsNotLostSilently(t *testing.T) {
	for name, c := range map[string]struct {
		what func(chan endpoint.SessionEvent)
		code wire.Code
	}{
		"dropped": {func(ev chan endpoint.SessionEvent) { ev <- endpoint.SessionEvent{Kind: endpoint.SessionDropped} }, wire.CodeResourceExhausted},
		"lost":    {func(ev chan endpoint.SessionEvent) { ev <- endpoint.SessionEvent{Kind: endpoint.SessionLost} }, wire.CodeDeadlineExceeded},
		"silent":  {func(ev chan endpoint.SessionEvent) { close(ev) }, wire.CodeDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			faketime.Test(t, func(t *testing.T) {
				events, ended := piped(t, far{input: func([]byte) error { return nil }}, false, "one", "two")
				events <- aSnapshot
				synctest.Wait()
				time.Sleep(9 * time.Second)
				c.what(events)
				if err := <-ended; wire.CodeOf(err) != c.code || passing(err) {
					t.Errorf("it ended with %v, want %s", err, c.code)
				}
			})
		})
	}
}

// TestPipedInputOfAnAgentThatEnds pipes into an agent that ends: its input is refused a moment before its end is told, and the end is what
// is said.
func TestPipedInputOfAnAgentThatEnds(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		events, ended := piped(t, far{paced: true, input: func([]byte) error { return nil }}, false, "one", "two")
		events <- wrote(0)
		events <- aSnapshot
		synctest.Wait()
		events <- endpoint.SessionEvent{Kind: endpoint.SessionDropped}
		time.Sleep(time.Second)
		events <- endpoint.SessionEvent{Kind: endpoint.SessionEnded, Exit: &wire.SessionExit{Code: 5}}
		if err := <-ended; err != io.EOF {
			t.Errorf("it ended with %v", err)
		}
	})
}

func wrote(n int) endpoint.SessionEvent {
	return endpoint.SessionEvent{Kind: endpoint.SessionWritten, Bytes: uint64(n)}
}

// TestPipedInputKeepsPace pipes more than may be under way at a session that tells what was written.
func TestPipedInputKeepsPace(t *testing.T) {
	pieces := slices.Repeat([]string{strings.Repeat("x", pieceSize)}, 20)
	for name, c := range map[string]struct {
		stays bool
		end   endpoint.SessionEvent
		want  error
	}{
		"leaves": {false, wrote(20 * pieceSize), errLeft},
		"stays":  {true, endpoint.SessionEvent{Kind: endpoint.SessionEnded, Exit: &wire.SessionExit{}}, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			faketime.Test(t, func(t *testing.T) {
				sent, most := 0, 0
				events, ended := piped(t, far{paced: true, input: func(p []byte) error {
					sent += len(p)
					return nil
				}}, c.stays, pieces...)
				events <- wrote(0)
				events <- aSnapshot
				for written := 0; ; {
					time.Sleep(time.Hour)
					synctest.Wait()
					most = max(most, sent-written)
					if written = min(written+5000, sent); written == 20*pieceSize {
						break
					}
					events <- wrote(written)
				}
				if sent != 20*pieceSize || most != wire.MaxUnwritten {
					t.Errorf("sent %d bytes, %d under way, want %d and at most %d", sent, most, 20*pieceSize, wire.MaxUnwritten)
				}
				select {
				case err := <-ended:
					t.Fatalf("it ended with %v before all was written", err)
				default:
				}
				if c.stays {
					events <- wrote(20 * pieceSize)
				}
				events <- c.end
				if err := <-ended; err != c.want {
					t.Errorf("it ended with %v, want %v", err, c.want)
				}
			})
		})
	}
}

// TestPipedInputThatIsKnownToBeWritten loses the connection at sessions that tell what was written: there is a doubt about the rest alone.
func TestPipedInputThatIsKnownToBeWritten(t *testing.T) {
	for name, c := range map[string]struct {
		written int
		code    wire.Code
		text    string
	}{
		"all":  {6, "", ""},
		"part": {4, wire.CodeDeadlineExceeded, "the last 2 of the 6 bytes"},
		"none": {0, wire.CodeDeadlineExceeded, "the last 6 of the 6 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			faketime.Test(t, func(t *testing.T) {
				events, ended := piped(t, far{paced: true, input: func([]byte) error { return nil }}, true, "one", "two")
				events <- aSnapshot
				synctest.Wait()
				events <- wrote(c.written)
				if c.code != "" {
					time.Sleep(time.Hour) // however long ago it is
				}
				events <- endpoint.SessionEvent{Kind: endpoint.SessionLost}
				if c.code == "" {
					events <- aSnapshot
					close(events)
					if err := <-ended; wire.CodeOf(err) != wire.CodeUnavailable || !passing(err) {
						t.Errorf("it ended with %v, want another try", err)
					}
					return
				}
				if err := <-ended; wire.CodeOf(err) != c.code || passing(err) || !strings.Contains(err.Error(), c.text) {
					t.Errorf("it ended with %v, want %s: %s", err, c.code, c.text)
				}
			})
		})
	}
}

// TestPipedInputThatNobodyTellsOf stays at the agent when the pipe ends: nothing came of it, or a part went to a session that does not tell.
func TestPipedInputThatNobodyTellsOf(t *testing.T) {
	for name, f := range map[string]func(*flow){
		"nothing": func(f *flow) { f.begin(true) },
		"another_session": func(f *flow) {
			f.begin(false)
			f.sent(3)
			f.begin(true)
		},
		"this_session": func(f *flow) {
			f.begin(false)
			f.sent(3)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var p flow
			f(&p)
			if err := p.end(); err != nil {
				t.Errorf("the end of the pipe: %v, want to stay", err)
			}
		})
	}
	p := flow{}
	p.begin(true)
	p.sent(3)
	if err := errors.Join(p.end(), p.wrote(2)); err != nil {
		t.Errorf("before all is written: %v", err)
	}
	if err := p.wrote(3); err != errLeft {
		t.Errorf("when all is written: %v, want the end", err)
	}
}

// TestPipedInputIsHeldBeforeTheEnd has the end of the pipe come while its last piece waits for a connection.
func TestPipedInputIsHeldBeforeTheEnd(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		got := ""
		events, ended := piped(t, far{paced: true, input: func(p []byte) error {
			if string(p) == "two" && !strings.HasSuffix(got, "-") {
				got += "-"
				return wire.Errorf(wire.CodeUnavailable, "not connected")
			}
			got += string(p)
			return nil
		}}, false, "one", "two")
		events <- aSnapshot
		synctest.Wait()
		events <- wrote(3)
		events <- aSnapshot
		events <- wrote(6)
		if err := <-ended; err != errLeft || got != "one-two" {
			t.Errorf("sent %q and ended with %v, want one-two and the end", got, err)
		}
	})
}

func TestPlain(t *testing.T) {
	var out, notes bytes.Buffer
	p := &plain{out: &out, notes: &notes}
	s := term.New(20, 3)
	_, _ = s.Write([]byte("\x1b[31mone\x1b[0m\r\ntwo"))
	p.take(endpoint.SessionEvent{Kind: endpoint.SessionSnapshot, Cols: 20, Rows: 3, Data: s.Snapshot()})
	p.take(endpoint.SessionEvent{Kind: endpoint.SessionOutput, Data: []byte("\x1b[1mthree\x1b[")})
	p.take(endpoint.SessionEvent{Kind: endpoint.SessionOutput, Data: []byte("0m\r\n\x1b]2;title\x1b\\\x1b(Bfour 漢\x07\x1b]0;x\x07!\r\n")})
	p.take(endpoint.SessionEvent{Kind: endpoint.SessionSnapshot, Cols: 20, Rows: 3, Data: s.Snapshot()})
	// Controls that are one character, also one that two pieces hold, and a character that begins alike.
	p.take(endpoint.SessionEvent{Kind: endpoint.SessionOutput, Data: []byte("\u009d\u009bé\u00a0\xc2")})
	p.take(endpoint.SessionEvent{Kind: endpoint.SessionOutput, Data: []byte("\x9b©\n")})
	if want := "one\ntwo\nthree\nfour 漢!\né\u00a0©\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}
