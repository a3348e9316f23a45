// Package brokerconf renders the configuration of a nats-server that is run apart, with the same trust that an
// embedded broker has.
//
// [Render] is pure: the same [Config] is always the same text, and it reads nothing. Whether certificate files can be used is
// for [CheckTLS] to say, and the account JWTs that the server starts with are written by [WriteAccounts]:
//
//	text, err := brokerconf.Render(brokerconf.Config{
//		OperatorJWT: a.OperatorJWT(), StoreDir: "/var/lib/cotal", Transport: brokerconf.TLSRequired,
//		CertFile: "/etc/cotal/cert.pem", KeyFile: "/etc/cotal/key.pem",
//	})
//
// It promises: no server without a stated transport; plaintext on loopback addresses only; every value quoted, so that no
// path or name can add a setting; accounts pushed over the system account take effect at once and survive restarts. It does
// not write routes, gateways or leaf nodes.
package brokerconf

import (
	"bytes"
	"fmt"
	"net/netip"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Transport says how clients reach the server. The zero value refuses to render.
type Transport int

// The transports.
const (
	// Plaintext is without encryption, on loopback addresses only.
	Plaintext Transport = iota + 1
	// TLSRequired refuses clients that do not encrypt.
	TLSRequired
)

// RandomPort lets the system choose a free port.
const RandomPort = -1

// Defaults of [Config].
const (
	DefaultHost         = "127.0.0.1"
	DefaultPort         = 4222
	DefaultServerName   = "cotal"
	DefaultMaxPayload   = 1 << 20
	DefaultSyncInterval = 250 * time.Millisecond
	DefaultMaxAccounts  = 10_000
)

// Config is what a server needs to know. OperatorJWT, StoreDir and Transport are required.
type Config struct {
	// OperatorJWT names the operator, its signing keys and the system account. The system account's JWT must be
	// among the files of [WriteAccounts].
	OperatorJWT string
	// StoreDir is the absolute folder of streams; account JWTs are kept in its folder "accounts" unless
	// AccountsDir is set.
	StoreDir, AccountsDir string
	// MaxAccounts bounds the account JWTs that are kept. Default 10,000.
	MaxAccounts int

	// Transport is how clients connect. CertFile and KeyFile are absolute and belong to TLSRequired.
	Transport         Transport
	CertFile, KeyFile string
	// Host and Port are bound. Default 127.0.0.1:4222.
	Host string
	Port int
	// Websocket, when set, is a second listener with the same transport.
	Websocket *Websocket

	// ServerName must be unique in a cluster. Default "cotal".
	ServerName string
	// MaxStore and MaxMemory cap in bytes what all accounts together may keep; the limits of accounts that do not fit are
	// refused when they are pushed. Zero is no cap.
	MaxStore, MaxMemory int64
	// MaxPayload is the largest message. Default 1 MiB.
	MaxPayload int
	// SyncInterval is how long a write may wait to be made durable against power loss. Default 250 ms. SyncAlways
	// makes every write durable before it is acknowledged.
	SyncInterval time.Duration
	SyncAlways   bool
}

// Websocket is a websocket listener.
type Websocket struct {
	// Host defaults to that of the server.
	Host string
	// Port is required.
	Port int
}

// Render returns the configuration file. Errors have code bad-request and name the field.
func Render(c Config) ([]byte, error) {
	c = c.withDefaults()
	system, err := c.validate()
	if err != nil {
		return nil, err
	}
	w := &writer{}
	w.line("# Written by cotal. Accounts are pushed over the system account; do not edit.")
	w.text("server_name", c.ServerName)
	w.text("host", c.Host)
	w.number("port", int64(c.Port))
	w.number("max_control_line", trust.MaxControlLine)
	w.number("max_payload", int64(c.MaxPayload))
	// Who is silent is asked after three seconds and sent away after nine, as by the embedded broker.
	w.text("ping_interval", "3s")
	w.number("ping_max", 2)
	w.open("authorization")
	w.number("timeout", int64(trust.AuthTimeout/time.Second))
	w.close()
	w.text("operator", c.OperatorJWT)
	w.text("system_account", system)
	w.open("resolver")
	w.word("type", "full")
	w.text("dir", c.AccountsDir)
	w.word("allow_delete", "true")
	w.word("hard_delete", "true")
	w.text("interval", "2m")
	w.text("timeout", "200ms")
	w.number("limit", int64(c.MaxAccounts))
	w.close()
	w.jetStream(c)
	w.tls(c)
	if ws := c.Websocket; ws != nil {
		w.open("websocket")
		w.text("host", ws.Host)
		w.number("port", int64(ws.Port))
		w.tls(c)
		if c.Transport == Plaintext {
			w.word("no_tls", "true")
		}
		w.close()
	}
	return w.b.Bytes(), nil
}

func (c Config) withDefaults() Config {
	setDefault(&c.Host, DefaultHost)
	setDefault(&c.Port, DefaultPort)
	setDefault(&c.ServerName, DefaultServerName)
	setDefault(&c.MaxPayload, DefaultMaxPayload)
	setDefault(&c.SyncInterval, DefaultSyncInterval)
	setDefault(&c.MaxAccounts, DefaultMaxAccounts)
	if c.AccountsDir == "" && c.StoreDir != "" {
		c.AccountsDir = filepath.Join(c.StoreDir, "accounts")
	}
	if c.Websocket != nil {
		ws := *c.Websocket
		setDefault(&ws.Host, c.Host)
		c.Websocket = &ws
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate returns the system account of the operator.
func (c Config) validate() (system string, err error) {
	operator, err := jwt.DecodeOperatorClaims(c.OperatorJWT)
	if err != nil || operator.SystemAccount == "" || operator.Issuer != operator.Subject {
		return "", bad("operator JWT is not one of an operator with a system account")
	}
	if err := c.validateTransport(); err != nil {
		return "", err
	}
	for _, f := range []struct{ name, value string }{{"store folder", c.StoreDir}, {"accounts folder", c.AccountsDir}} {
		if err := checkPath(f.name, f.value); err != nil {
			return "", err
		}
	}
	if err := checkText("server name", c.ServerName, func(r rune) bool { return r > ' ' && r < 0x7f }); err != nil {
		return "", err
	}
	switch {
	case c.MaxStore < 0 || c.MaxMemory < 0:
		return "", bad("store cap %d or memory cap %d is negative", c.MaxStore, c.MaxMemory)
	case c.MaxPayload < trust.MaxAgentPayload || c.MaxPayload > 64<<20:
		return "", bad("max payload %d outside %d to %d", c.MaxPayload, trust.MaxAgentPayload, 64<<20)
	case c.SyncInterval < time.Millisecond || c.SyncInterval > time.Hour:
		return "", bad("sync interval %s outside 1ms to 1h", c.SyncInterval)
	case c.MaxAccounts < 2:
		return "", bad("max accounts %d, at least 2", c.MaxAccounts)
	}
	return operator.SystemAccount, nil
}

func (c Config) validateTransport() error {
	listeners := []Websocket{{c.Host, c.Port}}
	if c.Websocket != nil {
		listeners = append(listeners, *c.Websocket)
	}
	for _, l := range listeners {
		if err := checkHost(l.Host); err != nil {
			return err
		}
		if l.Port != RandomPort && (l.Port < 1 || l.Port > 65535) {
			return bad("port %d outside 1 to 65535", l.Port)
		}
		if c.Transport == Plaintext && !loopback(l.Host) {
			return bad("plaintext on host %q: only loopback addresses, use TLS", l.Host)
		}
	}
	switch c.Transport {
	case Plaintext:
		if c.CertFile != "" || c.KeyFile != "" {
			return bad("plaintext takes no certificate")
		}
		return nil
	case TLSRequired:
		if err := checkPath("certificate", c.CertFile); err != nil {
			return err
		}
		return checkPath("key", c.KeyFile)
	}
	return bad("no transport: choose plaintext or TLS")
}

func checkHost(host string) error {
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	if len(host) > 253 || strings.HasPrefix(host, "-") {
		return bad("host %.64q is neither an address nor a name", host)
	}
	return checkText("host", host, func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-'
	})
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback() || host == "localhost"
}

func checkPath(name, value string) error {
	if err := checkText(name, value, func(r rune) bool { return r >= ' ' && r != 0x7f }); err != nil {
		return err
	}
	if !filepath.IsAbs(value) && !path.IsAbs(value) {
		return bad("%s %.96q is not an absolute path", name, value)
	}
	return nil
}

// checkText refuses empty values and characters outside a class. Quoting would hold them; a setting that needs them is a
// mistake or an attack.
func checkText(name, value string, ok func(rune) bool) error {
	if value == "" {
		return bad("%s is missing", name)
	}
	for _, r := range value {
		if !ok(r) || r == '�' {
			return bad("%s %.96q holds the character %q", name, value, r)
		}
	}
	return nil
}

func bad(format string, args ...any) error {
	return wire.Errorf(wire.CodeBadRequest, "render broker configuration: "+format, args...)
}

// writer writes settings one a line. Everything that comes from a Config goes through text or number.
type writer struct {
	b      bytes.Buffer
	indent string
}

func (w *writer) line(s string) { _, _ = fmt.Fprintf(&w.b, "%s%s\n", w.indent, s) }

func (w *writer) word(key, fixed string) { w.line(key + ": " + fixed) }

func (w *writer) number(key string, n int64) { w.line(key + ": " + strconv.FormatInt(n, 10)) }

// text writes a quoted value. Between quotes the format knows the backslash and the end quote only, no variables and
// no includes.
func (w *writer) text(key, value string) {
	w.line(key + `: "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`)
}

func (w *writer) open(key string) {
	w.line(key + " {")
	w.indent += "  "
}

func (w *writer) close() {
	w.indent = w.indent[2:]
	w.line("}")
}

func (w *writer) jetStream(c Config) {
	w.open("jetstream")
	w.text("store_dir", c.StoreDir)
	w.number("max_file_store", capOf(c.MaxStore))
	w.number("max_memory_store", capOf(c.MaxMemory))
	if c.SyncAlways {
		w.word("sync_interval", "always")
	} else {
		w.text("sync_interval", c.SyncInterval.String())
	}
	w.close()
}

// noCap stands for no cap. The server's own default, a share of what the machine has free, would leave an account whose
// limits do not fit under it without any stream, and say so only in its log.
const noCap = 1 << 50

func capOf(n int64) int64 {
	if n == 0 {
		return noCap
	}
	return n
}

func (w *writer) tls(c Config) {
	if c.Transport != TLSRequired {
		return
	}
	w.open("tls")
	w.text("cert_file", c.CertFile)
	w.text("key_file", c.KeyFile)
	w.text("min_version", "1.2")
	w.close()
}
