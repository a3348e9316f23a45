package config

import (
	"net"
	"net/url"
	"strings"

	"github.com/cotal-go/cotal/wire"
)

// Check refuses settings that contradict each other, in the words of the flags of `cotal up`. Its errors have code
// bad-request.
func (p People) Check() error {
	for _, port := range []struct {
		flag string
		n    int
	}{{"--exchange-port", p.Port}, {"--exchange-public-port", p.PublicPort}} {
		if port.n < 0 || port.n > 65535 {
			return wire.Errorf(wire.CodeBadRequest, "%s %d: allowed are 1 to 65535", port.flag, port.n)
		}
	}
	switch {
	case p.PublicPort == 0 && p.PublicURL != "":
		return wire.Errorf(wire.CodeBadRequest, "--exchange-public-url needs --exchange-public-port: the port on loopback that the proxy leads to")
	case p.PublicPort == 0 && p.TrustedProxy:
		return wire.Errorf(wire.CodeBadRequest, "--exchange-trusted-proxy needs --exchange-public-port: nothing but a proxy in front of that face is believed")
	case p.PublicPort != 0 && p.PublicPort == p.Port:
		return wire.Errorf(wire.CodeBadRequest, "--exchange-port and --exchange-public-port are both %d: the two faces are two listeners", p.Port)
	}
	if p.PublicURL != "" {
		if err := checkPublicURL(p.PublicURL); err != nil {
			return err
		}
	}
	if p.Advertise != "" {
		if _, err := ServerURL(p.Advertise); err != nil {
			return wire.Errorf(wire.CodeBadRequest, "--advertise %q: want nats://host:port or tls://host:port", redact(p.Advertise))
		}
	}
	return nil
}

func checkPublicURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return wire.Errorf(wire.CodeBadRequest, "--exchange-public-url %q: want https://host[:port][/path]", redact(s))
	case u.Scheme == "https", u.Scheme == "http" && onLoopback(u.Hostname()):
		return nil
	}
	return wire.Errorf(wire.CodeBadRequest, "--exchange-public-url %q would carry sign-ins in clear text: use https (http is for this machine only)", redact(s))
}

// onLoopback reports whether a host of a URL is this machine by its name alone.
func onLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
