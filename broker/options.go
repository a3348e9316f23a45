package broker

import (
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Defaults of [Options].
const (
	DefaultHost           = "127.0.0.1"
	DefaultPort           = 4222
	DefaultSyncInterval   = 250 * time.Millisecond
	DefaultMaxPayload     = 1 << 20
	DefaultMaxControlLine = trust.MaxControlLine
)

// RandomPort as [Options.Port] lets the system choose a free port; [Server.ClientURL] tells which.
const RandomPort = -1

// Transport says how clients reach the broker over the network. There is no default: the zero value refuses to
// start. Make one with [Plaintext] or [TLS].
type Transport struct {
	plaintext         bool
	certFile, keyFile string
}

// Plaintext is the transport without encryption. It binds loopback addresses only.
func Plaintext() Transport { return Transport{plaintext: true} }

// TLS is the encrypted transport. The certificate file holds the chain in PEM form, leaf first; the key file must
// not be readable by others.
func TLS(certFile, keyFile string) Transport { return Transport{certFile: certFile, keyFile: keyFile} }

// encrypted reports whether the transport was made by TLS.
func (t Transport) encrypted() bool { return !t.plaintext && t.certFile != "" && t.keyFile != "" }

// zero reports whether nobody chose.
func (t Transport) zero() bool { return !t.plaintext && !t.encrypted() }

// Options shapes an embedded broker. StoreDir and, unless NoListen is set, Transport are required.
type Options struct {
	// StoreDir holds streams and account JWTs. It is created with mode 0700, locked while the broker runs, and
	// refused when it belongs to somebody else.
	StoreDir string
	// Transport is how clients connect over the network.
	Transport Transport
	// Host is the address to bind. Default 127.0.0.1. Any other than loopback needs TLS, and no open mode.
	Host string
	// Port is the port to bind. Default 4222; RandomPort lets the system choose.
	Port int
	// Advertise is the host name that clients use, when it is not Host; a certificate must cover it.
	Advertise string
	// NoListen opens no socket at all: only InProcess connections reach the broker.
	NoListen bool
	// Open lets everybody who reaches the broker in, without accounts or credentials. Trust must then be empty.
	Open bool
	// ServerName is the name in listings. Default: the broker's random id.
	ServerName string
	// MaxMemory and MaxStore cap what all accounts together may keep in memory and on disk, in bytes. The limits of
	// the accounts are promises, and a cap they do not fit under is refused, here and by PutAccount. Zero is no
	// cap: each account is still bound by its own limits, but their sum may be more than the machine has.
	MaxMemory, MaxStore int64
	// MaxConnections caps connections of all accounts together. Zero means 65,536.
	MaxConnections int
	// MaxPayload is the largest message in bytes. Default 1 MiB.
	MaxPayload int
	// MaxControlLine is the longest protocol line in bytes; a connect with its credential is one. Default 16 KiB.
	MaxControlLine int
	// SyncInterval is how long an acknowledged message may wait for its disk write to be made durable against
	// power loss. Default 250 ms. A crash of the process alone loses nothing whatever it is.
	SyncInterval time.Duration
	// SyncAlways makes every message durable before it is acknowledged, at a tenth of the rate or less.
	SyncAlways bool
	// OnImpaired is called when an account cannot store any more, once for each in one life of the broker. It must not wait
	// and must not call the broker.
	OnImpaired func(Impairment)
	// Logger receives the broker's log. Nil discards.
	Logger *slog.Logger
}

// noCap is what nats-server is told when there is no cap. Its own default, three quarters of what the machine has free, would
// leave an account whose limits do not fit under it without any stream, and say so only in its log.
const noCap = 1 << 50

// caps are the caps as nats-server takes them.
func (o *Options) caps() (memory, disk int64) {
	memory, disk = o.MaxMemory, o.MaxStore
	if memory == 0 {
		memory = noCap
	}
	if disk == 0 {
		disk = noCap
	}
	return memory, disk
}

// withDefaults is a copy with every default filled in. nil is an empty set of options.
func (o *Options) withDefaults() Options {
	var c Options
	if o != nil {
		c = *o
	}
	if c.Host == "" {
		c.Host = DefaultHost
	}
	if c.Port == 0 {
		c.Port = DefaultPort
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = DefaultMaxPayload
	}
	if c.MaxControlLine == 0 {
		c.MaxControlLine = DefaultMaxControlLine
	}
	if c.SyncInterval == 0 {
		c.SyncInterval = DefaultSyncInterval
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// check refuses what must not start. Every refusal is one sentence that says what to change.
func (o *Options) check() error {
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"memory limit", o.MaxMemory}, {"store limit", o.MaxStore}, {"connection limit", int64(o.MaxConnections)},
		{"payload limit", int64(o.MaxPayload)}, {"control line limit", int64(o.MaxControlLine)},
		{"sync interval", int64(o.SyncInterval)},
	} {
		if n.value < 0 {
			return wire.Errorf(wire.CodeBadRequest, "start broker: %s %d is negative", n.name, n.value)
		}
	}
	if o.StoreDir == "" {
		return wire.Errorf(wire.CodeBadRequest, "start broker: no store directory given")
	}
	if o.NoListen {
		return nil
	}
	if o.Port < RandomPort || o.Port > 65535 {
		return wire.Errorf(wire.CodeBadRequest, "start broker: port %d is not between 1 and 65535", o.Port)
	}
	return o.checkReach()
}

// checkReach refuses a listener that more people reach than its protection allows.
func (o *Options) checkReach() error {
	switch {
	case o.Transport.zero():
		return wire.Errorf(wire.CodeFailedPrecondition,
			"start broker on %q: choose a transport, plaintext or TLS with a certificate and key", o.address())
	case dial.Loopback(o.Host):
		return nil
	case o.Open:
		return wire.Errorf(wire.CodeFailedPrecondition,
			"start broker on %q: an open broker lets everybody in and binds loopback addresses only", o.address())
	case !o.Transport.encrypted():
		return wire.Errorf(wire.CodeFailedPrecondition,
			"start broker on %q: plaintext binds loopback addresses only, so give a certificate and key for any other", o.address())
	}
	return nil
}

// address is host:port as a person would write it.
func (o *Options) address() string {
	if o.Port == RandomPort {
		return net.JoinHostPort(o.Host, "0")
	}
	return net.JoinHostPort(o.Host, strconv.Itoa(o.Port))
}
