package wire

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// DefaultPort is the port of a link that names none.
const DefaultPort = 4222

// maxLink bounds a link, in bytes.
const maxLink = 8192

// Link says how to reach a space:
//
//	cotal://[token@]host[:port]/space[?channel=a,b]
//
// The scheme cotals demands TLS. A user and password in place of the token are for open mode. A link is safe to print and
// log, inside another value too: its secret is reached only through Token, Password and Reveal.
type Link struct {
	TLS      bool
	User     string // set with a password only
	Host     string // a name, an IPv4 address, or an IPv6 address without brackets
	Port     int    // 1 to 65535
	Space    Space
	Channels []string // channels or patterns to join

	secret func() string // the password if User is set, else the token; nil is none
}

// ParseLink reads a link. Errors have code bad-request and never show the link, which may hold a secret.
func ParseLink(s string) (Link, error) {
	l, what := parseLink(s)
	if what != "" {
		return Link{}, Errorf(CodeBadRequest, "parse link: %s; want cotal[s]://[token@]host[:port]/space[?channel=a,b]", what)
	}
	return l, nil
}

func parseLink(s string) (l Link, what string) {
	if len(s) > maxLink {
		return l, "over 8192 bytes"
	}
	rest, ok := strings.CutPrefix(s, "cotal://")
	if !ok {
		if rest, ok = strings.CutPrefix(s, "cotals://"); !ok {
			return l, "scheme is not cotal or cotals"
		}
		l.TLS = true
	}
	authority, rest, ok := strings.Cut(rest, "/")
	if !ok {
		return l, "no space"
	}
	path, query, _ := strings.Cut(rest, "?")
	if what := l.parseQuery(query, strings.Contains(rest, "?")); what != "" {
		return l, what
	}
	if !inClass(path, classToken, MaxToken) {
		return l, "space is not [A-Za-z0-9_-]{1,64}"
	}
	l.Space = Space(path)
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		if what := l.parseUserinfo(authority[:i]); what != "" {
			return l, what
		}
		authority = authority[i+1:]
	}
	return l, l.parseHost(authority)
}

func (l *Link) parseQuery(query string, present bool) string {
	if !present {
		return ""
	}
	list, ok := strings.CutPrefix(query, "channel=")
	if !ok {
		return "the query is not channel=a,b"
	}
	for ch := range strings.SplitSeq(list, ",") {
		if !channelOK(ch, true) {
			return "a channel is neither a channel nor a pattern"
		}
		l.Channels = append(l.Channels, ch)
	}
	return ""
}

func (l *Link) parseUserinfo(info string) string {
	first, second, both := strings.Cut(info, ":")
	first, err1 := url.PathUnescape(first)
	second, err2 := url.PathUnescape(second)
	switch {
	case err1 != nil || err2 != nil || !idOK(first, false) || !idOK(second, false):
		return "the part before @ is not percent-encoded text of at most 256 bytes"
	case first == "" || both && second == "":
		return "the part before @ is neither token nor user:password"
	case both:
		*l = l.WithPassword(first, second)
	default:
		*l = l.WithToken(first)
	}
	return ""
}

func (l *Link) parseHost(hostport string) string {
	host, port := hostport, ""
	if strings.HasPrefix(hostport, "[") {
		end := strings.IndexByte(hostport, ']')
		if end < 0 {
			return "host has no closing bracket"
		}
		host, port = hostport[1:end], hostport[end+1:]
		if a, err := netip.ParseAddr(host); err != nil || !a.Is6() || a.Zone() != "" {
			return "host in brackets is not an IPv6 address"
		}
		if port != "" && port[0] != ':' {
			return "something follows the host"
		}
	} else {
		if i := strings.IndexByte(hostport, ':'); i >= 0 {
			host, port = hostport[:i], hostport[i:]
		}
		if !inClass(host, classHost, 253) {
			return "host is not a name or an address"
		}
	}
	l.Host, l.Port = host, DefaultPort
	if port == "" {
		return ""
	}
	n, err := strconv.ParseUint(port[1:], 10, 16)
	if err != nil || n == 0 || port[1] < '0' || port[1] > '9' {
		return "port is not from 1 to 65535"
	}
	l.Port = int(n)
	return ""
}

// WithToken returns a copy of l that carries a token and no user.
func (l Link) WithToken(token string) Link {
	l.User, l.secret = "", nil
	if token != "" {
		l.secret = func() string { return token }
	}
	return l
}

// WithPassword returns a copy of l that carries a user and password, for open mode.
func (l Link) WithPassword(user, password string) Link {
	l.User = user
	l.secret = func() string { return password }
	return l
}

// Token returns the token, or "" when the link has none or a password instead.
func (l Link) Token() string {
	if l.User != "" || l.secret == nil {
		return ""
	}
	return l.secret()
}

// Password returns the password that goes with User, or "".
func (l Link) Password() string {
	if l.User == "" || l.secret == nil {
		return ""
	}
	return l.secret()
}

// URL returns the broker's address for a client, "nats://host:port" or "tls://host:port", without any secret.
func (l Link) URL() string {
	scheme := "nats://"
	if l.TLS {
		scheme = "tls://"
	}
	return scheme + l.address()
}

func (l Link) address() string { return net.JoinHostPort(l.Host, strconv.Itoa(l.Port)) }

// String returns the link with its secret replaced by "***".
func (l Link) String() string {
	switch {
	case l.User != "":
		return l.text(escapeUserinfo(l.User) + ":***@")
	case l.secret != nil:
		return l.text("***@")
	}
	return l.text("")
}

// Reveal returns the whole link, secret included. ParseLink reads it back.
func (l Link) Reveal() string {
	switch {
	case l.User != "":
		return l.text(escapeUserinfo(l.User) + ":" + escapeUserinfo(l.Password()) + "@")
	case l.secret != nil:
		return l.text(escapeUserinfo(l.Token()) + "@")
	}
	return l.text("")
}

// escapeUserinfo percent-encodes all that could end the user part early.
func escapeUserinfo(s string) string {
	return strings.NewReplacer(":", "%3A", "@", "%40").Replace(url.PathEscape(s))
}

func (l Link) text(userinfo string) string {
	scheme := "cotal://"
	if l.TLS {
		scheme = "cotals://"
	}
	s := scheme + userinfo + l.address() + "/" + string(l.Space)
	if len(l.Channels) > 0 {
		s += "?channel=" + strings.Join(l.Channels, ",")
	}
	return s
}

// Format prints String for every verb.
func (l Link) Format(f fmt.State, verb rune) {
	if verb == 'q' {
		fmt.Fprintf(f, "%q", l.String())
		return
	}
	_, _ = io.WriteString(f, l.String())
}

// LogValue returns String.
func (l Link) LogValue() slog.Value { return slog.StringValue(l.String()) }

// MarshalText returns String: encoding a link shows no secret.
func (l Link) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Equal reports whether both links reach the same space the same way, secret included.
func (l Link) Equal(o Link) bool {
	return l.TLS == o.TLS && l.User == o.User && l.Host == o.Host && l.Port == o.Port && l.Space == o.Space &&
		slices.Equal(l.Channels, o.Channels) && l.Token() == o.Token() && l.Password() == o.Password()
}
