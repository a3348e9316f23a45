package mcpserver

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cotal-go/cotal/wire"
)

// HTTPPath is where Handler serves the tools.
const HTTPPath = "/mcp"

const (
	// minToken is the least length of a token, in characters.
	minToken = 32
	maxToken = 512
	// sessionIdle ends the session of a client that says nothing.
	sessionIdle = time.Hour
)

// Token proves a client of Handler. It prints as [token]; a file holds it, see ReadToken.
type Token struct{ reveal func() string }

// String hides the token.
func (Token) String() string { return "[token]" }

// GoString hides the token.
func (Token) GoString() string { return "[token]" }

// is compares in constant time, whatever the lengths.
func (t Token) is(s string) bool {
	if t.reveal == nil {
		return false
	}
	a, b := sha256.Sum256([]byte(t.reveal())), sha256.Sum256([]byte(s))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// ReadToken reads the token in a file, or makes one, 0600, when there is no file.
//
// Errors: failed-precondition for a file that others can read, or that cannot be made; bad-request for one without a token of 32
// to 512 printable characters.
func ReadToken(path string) (Token, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return readToken(path)
	case err != nil:
		return Token{}, wire.Errorf(wire.CodeFailedPrecondition, "make token file %q: %v", path, err)
	}
	text := rand.Text() + rand.Text()
	_, err = f.WriteString(text + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return Token{}, wire.Errorf(wire.CodeFailedPrecondition, "write token file %q: %v", path, err)
	}
	return Token{func() string { return text }}, nil
}

func readToken(path string) (Token, error) {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return Token{}, wire.Errorf(wire.CodeFailedPrecondition, "read token file %q: %v", path, err)
	case !info.Mode().IsRegular():
		return Token{}, wire.Errorf(wire.CodeFailedPrecondition, "read token file %q: it is no plain file", path)
	case info.Mode().Perm()&0o077 != 0 && unixModes:
		return Token{}, wire.Errorf(wire.CodeFailedPrecondition, "read token file %q: others can read it (%v), want 0600", path, info.Mode().Perm())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Token{}, wire.Errorf(wire.CodeFailedPrecondition, "read token file %q: %v", path, err)
	}
	text := strings.TrimSpace(string(data))
	if len(text) < minToken || len(text) > maxToken || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return Token{}, wire.Errorf(wire.CodeBadRequest, "read token file %q: want a token of %d to %d printable characters", path, minToken, maxToken)
	}
	return Token{func() string { return text }}, nil
}

// Listen opens a port of the loopback interface, and no other.
//
// Errors: failed-precondition for an address elsewhere or that is in use; bad-request for one that is malformed.
func Listen(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "listen at %q: want <loopback address>:<port>", address)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "listen at %q: tools are served on the loopback interface alone, such as 127.0.0.1:0", address)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "listen at %q: %v", address, err)
	}
	return l, nil
}

// Handler serves the tools at HTTPPath to clients that bring the token, as a bearer in the header Authorization. The request must
// be for the address of the listener or localhost with its port, and a browser's must come from there: so no page of another
// origin reaches it. A token that is the zero value lets nobody in. Notifications claude/channel do not come here, see Options.Channel.
func (s *Server) Handler(at net.Addr, token Token) http.Handler {
	hosts := ownHosts(at)
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.mcp }, &mcp.StreamableHTTPOptions{
		SessionTimeout: sessionIdle, MaxRequestBodyBytes: maxArguments + 64<<10, PropagateRequestCancellation: true,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		bearer, has := bearerOf(r.Header.Get("Authorization"))
		switch {
		case !hosts[strings.ToLower(r.Host)], origin != "" && !ownOrigin(origin, hosts):
			http.Error(w, "this server is not for that host or origin", http.StatusForbidden)
		case !has || !token.is(bearer):
			w.Header().Set("WWW-Authenticate", `Bearer realm="cotal"`)
			http.Error(w, "a bearer token is needed", http.StatusUnauthorized)
		case r.URL.Path != HTTPPath:
			http.NotFound(w, r)
		default:
			inner.ServeHTTP(w, r)
		}
	})
}

// bearerOf is the token in a header Authorization. Scheme names are case-insensitive, and spaces stand after them (RFC 9110 section 11).
func bearerOf(header string) (string, bool) {
	scheme, rest, ok := strings.Cut(header, " ")
	return strings.TrimLeft(rest, " "), ok && strings.EqualFold(scheme, "Bearer")
}

func ownHosts(at net.Addr) map[string]bool {
	hosts := map[string]bool{strings.ToLower(at.String()): true}
	if _, port, err := net.SplitHostPort(at.String()); err == nil {
		hosts["localhost:"+port] = true
	}
	return hosts
}

func ownOrigin(origin string, hosts map[string]bool) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Scheme == "http" && hosts[strings.ToLower(u.Host)]
}
