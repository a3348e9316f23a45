package endpoint

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"strings"

	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/wire"
)

// maxCA bounds a file of CA certificates.
const maxCA = 4 << 20

// server is where to connect, checked.
type server struct {
	urls string      // comma-separated, what nats.Connect takes
	text string      // for people
	tls  *tls.Config // nil: plaintext
	// fixed means that addresses the broker advertises are not followed: they need not be on loopback.
	fixed bool
}

// parseServer checks one or more comma-separated addresses, nats://host:port or tls://host:port.
func parseServer(addr string, o *Options) (server, error) {
	if o.InProcess != nil {
		if addr != "" {
			return server{}, wire.Errorf(wire.CodeBadRequest, "check broker address %q: InProcess takes none", addr)
		}
		return server{text: "in process"}, nil
	}
	if addr == "" {
		return server{}, wire.Errorf(wire.CodeBadRequest, "check broker address: it is empty")
	}
	var urls []string
	secure, outside := 0, ""
	for part := range strings.SplitSeq(addr, ",") {
		u, err := parseAddress(part)
		if err != nil {
			return server{}, err
		}
		switch {
		case u.Scheme == "tls" || o.TLS != nil || o.CAFile != "":
			secure++
		case !dial.Loopback(u.Hostname()):
			outside = u.Host
		}
		urls = append(urls, u.String())
	}
	if o.Locate != nil && len(urls) > 1 {
		return server{}, wire.Errorf(wire.CodeBadRequest, "check broker address %q: Locate wants one", addr)
	}
	s := server{urls: strings.Join(urls, ","), text: strings.Join(urls, ",")}
	switch {
	case secure > 0 && secure < len(urls):
		return server{}, wire.Errorf(wire.CodeBadRequest, "check broker address %q: some with TLS and some without", s.text)
	case secure > 0:
		var err error
		s.tls, err = tlsConfig(o)
		s.fixed = o.Locate != nil
		return s, err
	case outside != "" && !o.AllowPlaintext:
		return server{}, wire.Errorf(wire.CodeFailedPrecondition, "connect to broker %q: plaintext outside loopback is refused, use tls://", outside)
	}
	s.fixed = !o.AllowPlaintext || o.Locate != nil
	return s, nil
}

func parseAddress(s string) (*url.URL, error) {
	s = strings.TrimSpace(s)
	if !strings.Contains(s, "://") {
		s = "nats://" + s
	}
	bad := func(why string) error {
		return wire.Errorf(wire.CodeBadRequest, "check broker address: %s; want nats://host:port or tls://host:port", why)
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, bad("it is no address") // the cause would quote it, and what it may hold
	case u.User != nil:
		return nil, bad("it holds a user or a secret, which Options.Open or a credential must carry")
	case u.Scheme != "nats" && u.Scheme != "tls":
		return nil, bad("its scheme is neither nats nor tls")
	case u.Hostname() == "":
		return nil, bad("it names no host")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return nil, bad("something follows the host and port")
	}
	u.Path = ""
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), "4222")
	}
	return u, nil
}

func tlsConfig(o *Options) (*tls.Config, error) {
	if o.TLS != nil {
		return o.TLS.Clone(), nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile == "" {
		return c, nil
	}
	pem, err := readBounded(o.CAFile, maxCA)
	if err != nil {
		return nil, err
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, wire.Errorf(wire.CodeBadRequest, "read CA certificates %q: there are none in it", o.CAFile)
	}
	return c, nil
}
