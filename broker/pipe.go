package broker

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// pipeBuffer is how many unsent bytes an in-process connection keeps before Write waits for the broker.
	pipeBuffer = 8 << 20
	// pipeKeep is the largest buffer kept for reuse once it has been sent.
	pipeKeep = 256 << 10
	// pipeLinger is how long Close waits for unsent bytes to reach the broker.
	pipeLinger = time.Second
)

// provider hands out in-process connections to one server. It is a pointer type because nats.go compares
// the values it is given.
type provider struct{ s *Server }

var _ nats.InProcessConnProvider = (*provider)(nil)

// InProcessConn opens a connection to the broker that does not leave the process.
func (p *provider) InProcessConn() (net.Conn, error) { return p.s.dialInProcess() }

// pipe is the client end of an in-process connection whose Write does not wait for the reader.
//
// The raw connection is a net.Pipe: it has no buffer, so when the broker refuses a credential while the client is
// still writing, both ends wait for each other until a deadline of ten seconds and the client never sees the
// reason. Here Write appends to a buffer and one goroutine carries it over, as a kernel would for a socket.
type pipe struct {
	net.Conn // reading, addresses

	onClose func(*pipe)   // called once, after the connection is closed
	sent    chan struct{} // closed when the sending goroutine has ended
	once    sync.Once

	mu       sync.Mutex // guards everything below
	pending  []byte     // accepted, not yet taken by the sender
	spare    []byte     // the sender's previous buffer, for reuse
	err      error      // why nothing more is sent
	closing  bool
	deadline time.Time
	timer    *time.Timer // wakes a waiting Write at deadline; nil without one
	changed  sync.Cond   // broadcast whenever the state above changes
}

// newPipe starts carrying writes over to inner. The caller must Close the result.
func newPipe(inner net.Conn, onClose func(*pipe)) *pipe {
	p := &pipe{Conn: inner, onClose: onClose, sent: make(chan struct{})}
	p.changed.L = &p.mu
	go p.send()
	return p
}

// Write queues b. It waits only while more than pipeBuffer bytes are unsent.
func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.closing:
			return 0, net.ErrClosed
		case p.err != nil:
			return 0, p.err
		case !p.deadline.IsZero() && !time.Now().Before(p.deadline):
			return 0, os.ErrDeadlineExceeded
		case len(p.pending) == 0 || len(p.pending)+len(b) <= pipeBuffer:
			p.pending = append(p.pending, b...)
			p.changed.Broadcast()
			return len(b), nil
		}
		p.changed.Wait()
	}
}

// send carries pending bytes to the broker until the connection ends or is closed with nothing left.
func (p *pipe) send() {
	defer close(p.sent)
	for {
		batch, ok := p.take()
		if !ok {
			return
		}
		_, err := p.Conn.Write(batch)
		p.mu.Lock()
		if err != nil && p.err == nil {
			p.err = err
			p.pending = nil
		}
		if cap(batch) <= pipeKeep {
			p.spare = batch[:0]
		}
		p.changed.Broadcast()
		p.mu.Unlock()
	}
}

// take waits for bytes to send and takes all of them; it is false when there will be no more.
func (p *pipe) take() ([]byte, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil {
		if len(p.pending) > 0 {
			batch := p.pending
			p.pending, p.spare = p.spare, nil
			p.changed.Broadcast()
			return batch, true
		}
		if p.closing {
			return nil, false
		}
		p.changed.Wait()
	}
	return nil, false
}

// Close sends what was accepted, for at most pipeLinger, then ends the connection. It is idempotent, and when it
// returns no goroutine of the connection is left.
func (p *pipe) Close() error {
	p.once.Do(p.close)
	return nil
}

func (p *pipe) close() {
	p.mu.Lock()
	p.closing = true
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	p.changed.Broadcast()
	p.mu.Unlock()

	// The broker may itself wait for us to read before it reads what we send, so read until it has.
	var drained sync.WaitGroup
	drained.Go(func() { _, _ = io.Copy(io.Discard, p.Conn) })
	linger := time.NewTimer(pipeLinger)
	select {
	case <-p.sent:
	case <-linger.C:
	}
	linger.Stop()
	_ = p.Conn.Close() // fails a write or read that still waits
	<-p.sent
	drained.Wait()
	if p.onClose != nil {
		p.onClose(p)
	}
}

// SetDeadline sets the read and the write deadline.
func (p *pipe) SetDeadline(t time.Time) error {
	return errors.Join(p.SetReadDeadline(t), p.SetWriteDeadline(t))
}

// SetWriteDeadline bounds how long Write waits for room. Bytes already accepted are not affected.
func (p *pipe) SetWriteDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return net.ErrClosed
	}
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	p.deadline = t
	if !t.IsZero() {
		p.timer = time.AfterFunc(time.Until(t), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.changed.Broadcast()
		})
	}
	p.changed.Broadcast()
	return nil
}
