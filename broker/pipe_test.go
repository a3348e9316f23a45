package broker_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/internal/faketime"
)

// pair is our end and the broker's end of a connection.
func pair() (ours, theirs net.Conn) {
	ours, theirs = net.Pipe()
	return broker.NewPipe(ours), theirs
}

func TestPipeWriteDoesNotWaitForTheReader(t *testing.T) {
	p, theirs := pair()
	var sent []byte
	for i := range 1000 {
		b := bytes.Repeat([]byte{byte(i)}, i)
		sent = append(sent, b...)
		if n, err := p.Write(b); n != len(b) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	var got []byte
	var wg sync.WaitGroup
	wg.Go(func() { got, _ = io.ReadAll(theirs) })
	if err := p.Close(); err != nil { // sends what is left
		t.Errorf("Close: %v", err)
	}
	wg.Wait()
	if !bytes.Equal(got, sent) {
		t.Errorf("the reader got %d bytes, want the %d that were written", len(got), len(sent))
	}
	if _, err := p.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Write after Close = %v, want %v", err, net.ErrClosed)
	}
	if err := p.SetDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("SetDeadline after Close = %v, want %v", err, net.ErrClosed)
	}
	if err := p.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
}

func TestPipeBothEndsWriteAtOnce(t *testing.T) {
	p, theirs := pair()
	defer func() { _ = p.Close() }()
	if _, err := p.Write([]byte("CONNECT")); err != nil {
		t.Fatal(err)
	}
	// With a bare net.Pipe this is where both would wait.
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = theirs.Write([]byte("-ERR"))
		_ = theirs.Close()
	})
	got, err := io.ReadAll(p)
	if string(got) != "-ERR" || err != nil {
		t.Errorf("read = %q, %v; want the refusal", got, err)
	}
	wg.Wait()
}

func TestPipeBoundsWhatIsUnsent(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		p, theirs := pair()
		chunk := make([]byte, broker.PipeBuffer)
		for range 2 { // one is with the sender, one is pending
			if _, err := p.Write(chunk); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if err := p.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := p.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write into a full buffer = %v, want %v", err, os.ErrDeadlineExceeded)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("Write waited %v, want the minute of its deadline", took)
		}
		// Nobody reads, so Close gives up after its linger.
		began = time.Now()
		_ = p.Close()
		if took := time.Since(began); took != broker.PipeLinger {
			t.Errorf("Close waited %v, want %v", took, broker.PipeLinger)
		}
		_ = theirs.Close()
	})
}

func TestPipeWriteFailsOnceTheBrokerIsGone(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		p, theirs := pair()
		_ = theirs.Close()
		_, _ = p.Write([]byte("lost"))
		synctest.Wait()
		if _, err := p.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Write to a closed broker = %v, want %v", err, io.ErrClosedPipe)
		}
		_ = p.Close()
	})
}
