package dial

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/wire"
)

// How often an address is looked up while the connection is away, and while it is there: whoever took the old address may have let it
// in. It is a read of a small file.
const (
	lookEvery  = 500 * time.Millisecond
	checkEvery = 5 * time.Second
)

// Locator finds a broker that comes back at another address, for one connection. Make it with [NewLocator]; [Locator.Address] goes
// into the dialer and [Locator.Watch] runs beside the connection. That of a nil locate is nil, and leaves addresses as they are.
type Locator struct {
	scheme string
	locate func() string

	mu     sync.Mutex // guards called
	called string     // host:port of the last attempt, "" when it was nowhere
}

// NewLocator returns the locator of a broker that was at server, nats://host:port or tls://host:port, and of which locate says where
// it is now, in the same form; "" for nowhere.
func NewLocator(server string, locate func() string) *Locator {
	if locate == nil {
		return nil
	}
	l := &Locator{locate: locate}
	if u, err := url.Parse(server); err == nil {
		l.scheme, l.called = u.Scheme, u.Host
	}
	return l
}

// Address is where to dial instead of address. It stays when encryption would be gained or lost by another one, and when another one would
// carry plaintext to another machine.
//
// Errors: unavailable when the broker is nowhere. Whoever listens where it was is somebody else.
func (l *Locator) Address(address string) (string, error) {
	if l == nil {
		return address, nil
	}
	now, known := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !known {
		l.called = ""
		return "", wire.Errorf(wire.CodeUnavailable, "connect to broker: it is not running")
	}
	l.called = cmp.Or(now, l.called, address)
	return l.called, nil
}

// now is host:port of the broker, "" when that may not be used, and whether it is anywhere.
func (l *Locator) now() (host string, known bool) {
	said := l.locate()
	u, err := url.Parse(said)
	if err != nil || u.Scheme != l.scheme || u.Port() == "" || u.Scheme != "tls" && !Loopback(u.Hostname()) {
		return "", said != ""
	}
	return u.Host, true
}

// Watch looks for another address until nc is closed, and has it tried at once.
func (l *Locator) Watch(nc *nats.Conn) {
	if l == nil {
		return
	}
	changed := nc.StatusChanged(nats.RECONNECTING, nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(changed)
	timer := time.NewTimer(checkEvery)
	defer timer.Stop()
	for !nc.IsClosed() {
		wait := lookEvery
		if nc.IsConnected() {
			wait = checkEvery
		}
		timer.Reset(wait)
		select {
		case <-changed:
			continue
		case <-timer.C:
		}
		if now, _ := l.now(); now != "" && now != l.last() {
			_ = nc.ForceReconnect() // also ends a pause; when it is closed, there is nothing to do
		}
	}
}

// Server is the address of the last attempt; address when that is the only one.
func (l *Locator) Server(address string) string {
	if l == nil {
		return address
	}
	return l.scheme + "://" + l.last()
}

// Now is the address where the broker is now as far as that is known and may be used; address else.
func (l *Locator) Now(address string) string {
	if l == nil {
		return address
	}
	if now, _ := l.now(); now != "" {
		return l.scheme + "://" + now
	}
	return address
}

// last is host:port of the last attempt.
func (l *Locator) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.called
}

// dialer is the dialer of a connection whose broker may move, with a locator, and may be anybody.
type dialer struct {
	net    net.Dialer
	at     *Locator
	inside bool // plaintext that is to stay on this machine, whatever addresses a broker names
}

// confined reports whether every address of a list is of this machine.
func confined(urls string) bool {
	for part := range strings.SplitSeq(urls, ",") {
		if u, err := url.Parse(strings.TrimSpace(part)); err != nil || u.Scheme != "nats" || !Loopback(u.Hostname()) {
			return false
		}
	}
	return true
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	address, err := d.at.Address(address)
	if err != nil {
		return nil, err
	}
	if host, _, err := net.SplitHostPort(address); d.inside && (err != nil || !Loopback(host)) {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "connect to broker: plaintext does not leave this machine, and %q does", address)
	}
	conn, err := d.net.DialContext(context.Background(), network, address) // nats.go passes no context; the timeout bounds it
	if err != nil {
		return nil, err
	}
	return Greeted(conn), nil
}

// Loopback reports whether a host cannot be outside this machine. A name other than localhost can.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
