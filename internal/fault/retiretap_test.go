package fault_test

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
)

// steps counts what an authority changes, in the broker or in the secret store, and lets it die before one of them. Nothing in
// the authority knows of it: it looks at the connections and at the store. Between two changes nothing is left behind, so the
// boundaries of all steps are the moments before a change.
type steps struct {
	mu    sync.Mutex // guards the fields below
	armed bool
	left  int // changes until it dies, counted from 1; 0: it lives
	names []string
	dead  bool
	die   func() // does not return in a process of its own
}

// change is told that something is about to be changed, and returns an error when it must not be.
func (s *steps) change(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return net.ErrClosed
	}
	if !s.armed {
		return nil
	}
	s.names = append(s.names, name)
	if s.left--; s.left == 0 {
		s.dead = true
		s.die()
		return net.ErrClosed
	}
	return nil
}

func (s *steps) arm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = true
}

func (s *steps) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.names...)
}

// reads are parts of the subjects of requests that change nothing.
var reads = []string{".MSG.GET.", ".INFO.", ".NAMES.", ".LIST", "CONNZ", ".PING", "LOOKUP"}

// publish is told what a client is about to publish.
func (s *steps) publish(subject string) error {
	for _, r := range reads {
		if strings.Contains(subject, r) {
			return nil
		}
	}
	return s.change(subject)
}

// tap is a connection of a client to the broker that shows what is published before it leaves: what came before it has left.
type tap struct {
	net.Conn
	see  func(subject string) error
	line []byte // of a command that is not complete
	skip int    // bytes left of the body of the last one
}

func (c *tap) Write(b []byte) (int, error) {
	sent := 0
	for i := 0; i < len(b); {
		if c.skip > 0 {
			n := min(c.skip, len(b)-i)
			c.skip -= n
			i += n
			continue
		}
		begin := i
		end := bytes.IndexByte(b[i:], '\n')
		if end < 0 {
			c.line = append(c.line, b[i:]...)
			break
		}
		c.line = append(c.line, b[i:i+end+1]...)
		i += end + 1
		f := strings.Fields(string(c.line))
		c.line = c.line[:0]
		if len(f) < 3 || f[0] != "PUB" && f[0] != "HPUB" {
			continue
		}
		size, err := strconv.Atoi(f[len(f)-1])
		if err != nil {
			return sent, err
		}
		c.skip = size + len("\r\n")
		n, err := c.Conn.Write(b[sent:begin])
		if sent += n; err != nil {
			return sent, err
		}
		if err := c.see(f[1]); err != nil {
			return sent, err
		}
	}
	n, err := c.Conn.Write(b[sent:])
	return sent + n, err
}

// tapped hands out connections to a broker that are looked at.
type tapped struct {
	open  func() (net.Conn, error)
	steps *steps
	see   func(subject string) // of what is published; may be nil

	mu   sync.Mutex // guards the fields below
	all  []net.Conn
	dead bool
}

// InProcessConn implements nats.InProcessConnProvider.
func (p *tapped) InProcessConn() (net.Conn, error) {
	c, err := p.open()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	p.all = append(p.all, c)
	return &tap{Conn: c, see: func(subject string) error {
		if p.see != nil {
			p.see(subject)
		}
		return p.steps.publish(subject)
	}}, nil
}

// cut ends all connections for good, as the end of a process does.
func (p *tapped) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
	for _, c := range p.all {
		_ = c.Close()
	}
}

var _ nats.InProcessConnProvider = (*tapped)(nil)

// tappedStore shows what is changed in a secret store.
type tappedStore struct {
	secret.Store
	steps *steps
}

func (s tappedStore) Put(ctx context.Context, key string, value []byte) error {
	if err := s.steps.change("store " + key); err != nil {
		return err
	}
	return s.Store.Put(ctx, key, value)
}

func (s tappedStore) Create(ctx context.Context, key string, value []byte) error {
	if err := s.steps.change("store " + key); err != nil {
		return err
	}
	return s.Store.Create(ctx, key, value)
}

func (s tappedStore) CompareAndSwap(ctx context.Context, key string, old, new []byte) error {
	if err := s.steps.change("store " + key); err != nil {
		return err
	}
	return s.Store.CompareAndSwap(ctx, key, old, new)
}

func (s tappedStore) Delete(ctx context.Context, key string) error {
	if err := s.steps.change("store " + key); err != nil {
		return err
	}
	return s.Store.Delete(ctx, key)
}

// mortal is an authority that can die between two steps.
type mortal struct {
	*auth.Authority
	ctl *broker.Control
}

// newMortal makes an authority over the records of a store, with a control and sessions of its own.
func newMortal(ctx context.Context, store secret.Store, p *tapped) (*mortal, error) {
	m, err := mint.Open(ctx, tappedStore{store, p.steps}, nil)
	if err != nil {
		return nil, err
	}
	source := func(ctx context.Context) (*trust.Credentials, error) {
		return m.SystemUser(ctx, mint.SystemRequest{Kind: trust.SystemControl})
	}
	ctl, err := broker.Dial(ctx, "", source, &broker.DialOptions{InProcess: p, OperatorJWT: m.OperatorJWT()})
	if err != nil {
		return nil, err
	}
	dialer := func(ctx context.Context, creds *trust.Credentials) (*nats.Conn, error) {
		return dial.Connect(ctx, dial.Options{InProcess: p, Creds: creds, Name: creds.Identity().Principal.String()})
	}
	return &mortal{auth.New(m, ctl, dialer, &auth.Options{By: "mortal"}), ctl}, nil
}

func (m *mortal) close() {
	_ = m.Close()
	_ = m.ctl.Close()
}
