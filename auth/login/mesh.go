package login

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	meshPath = "/.well-known/cotal-mesh"
	// maxCapability bounds the capability file in bytes.
	maxCapability = 64 << 10
)

// MeshInfo is what a mesh says about itself to who wants to join it. Whoever answers at the address vouches for it.
type MeshInfo struct {
	Space       wire.Space
	Server      string // where the broker is reached, a NATS URL; empty when the mesh does not say
	TLSRequired bool
	// Provider is where people sign in. Endpoints that the mesh does not name, or that are elsewhere than the issuer, are empty;
	// [Provider.Discover] finds them.
	Provider Provider
	// ExchangeURL is the base address of the token exchange, for [ExchangeOptions].
	ExchangeURL string
	// Sentinel is the public credential that every client of the space presents beside its bearer. It permits nothing. The
	// exchange gives it too.
	Sentinel string
}

// meshDocument is the well-known document.
type meshDocument struct {
	Space       string `json:"space"`
	Server      string `json:"server"`
	TLSRequired bool   `json:"tlsRequired"`
	UserAuth    *struct {
		Provider  string   `json:"provider"`
		IDP       Provider `json:"idp"`
		Endpoints struct {
			URL string `json:"url"`
		} `json:"endpoints"`
	} `json:"userAuth"`
	Sentinel string `json:"sentinel"`
	Creds    string `json:"sentinelCreds"` // as earlier programs named it
}

// Mesh reads what the mesh at an address, such as https://mesh.example, says about itself in its well-known document. Nil hc means a
// client of its own.
//
// Errors: bad-request for an address that cannot be used, failed-precondition with [trust.ReasonStaticMode] when nobody signs in there,
// failed-precondition for a document that cannot be used, unavailable when there is none.
func Mesh(ctx context.Context, address string, hc *http.Client) (MeshInfo, error) {
	base := strings.TrimSuffix(address, "/")
	if err := checkAddress(base); err != nil {
		return MeshInfo{}, wire.Errorf(wire.CodeBadRequest, "find mesh: %w", err)
	}
	a, err := get(ctx, client(hc), base+meshPath, nil)
	if err != nil {
		return MeshInfo{}, err
	}
	if a.status != http.StatusOK {
		return MeshInfo{}, wire.Errorf(wire.CodeUnavailable, "find mesh: %s", a.describe())
	}
	info, err := parseMesh(a.body)
	if err != nil {
		return MeshInfo{}, err
	}
	if info.ExchangeURL == "" {
		info.ExchangeURL = base
	}
	if pointsInward(info.ExchangeURL, base) {
		return MeshInfo{}, wire.Errorf(wire.CodeFailedPrecondition, "find mesh: space %q names exchange %q, which is on this machine and not there",
			info.Space, clip(info.ExchangeURL))
	}
	return info, nil
}

func parseMesh(data []byte) (MeshInfo, error) {
	var d meshDocument
	if err := wire.Decode(data, &d, maxAnswer); err != nil {
		return MeshInfo{}, wire.Errorf(wire.CodeUnavailable, "find mesh: the answer is not the document of a mesh: check the address")
	}
	space, err := wire.ParseSpace(d.Space)
	if err != nil {
		return MeshInfo{}, wire.Errorf(wire.CodeFailedPrecondition, "find mesh: its document names no space: %w", err)
	}
	switch {
	case d.UserAuth == nil:
		return MeshInfo{}, trust.Deny(wire.CodeFailedPrecondition, trust.ReasonStaticMode,
			"space %q knows no people: ask its operator for a credential file", space)
	case d.UserAuth.Provider != "cotal":
		return MeshInfo{}, wire.Errorf(wire.CodeFailedPrecondition, "space %q lets people in by %q, which this program does not know",
			space, clip(d.UserAuth.Provider))
	}
	p, err := d.UserAuth.IDP.check()
	if err != nil {
		return MeshInfo{}, wire.Errorf(wire.CodeFailedPrecondition, "find mesh: the document of space %q: %w", space, err)
	}
	exchange := d.UserAuth.Endpoints.URL
	if exchange != "" {
		if err := checkAddress(exchange); err != nil {
			return MeshInfo{}, wire.Errorf(wire.CodeFailedPrecondition, "find mesh: the exchange of space %q: %w", space, err)
		}
	}
	fill(&d.Sentinel, d.Creds)
	return MeshInfo{Space: space, Server: d.Server, TLSRequired: d.TLSRequired, Provider: p.ofIssuer(), ExchangeURL: exchange, Sentinel: d.Sentinel}, nil
}

// Capability is what a running node lets the programs of its own user know: where its exchange listens on this machine, and the
// word that opens it.
type Capability struct {
	URL       string        // base address of the exchange, on this machine
	Cap       func() string // the capability, a secret of this start of the node
	PID       int           // of the node
	PublicURL string        // where others reach the exchange, or empty
}

// ReadCapability reads the capability file of a node. It refuses a file that others can read.
//
// Errors: not-found when no node runs that wrote one, permission-denied when others can read it, with the command that ends that, or when
// this user cannot, bad-request when it is not such a file.
func ReadCapability(path string) (Capability, error) {
	data, err := readPrivate(path)
	if err != nil {
		return Capability{}, err
	}
	c, err := parseCapability(data)
	if err != nil {
		return Capability{}, wire.Errorf(wire.CodeBadRequest, "read capability %q: %w", path, err)
	}
	return c, nil
}

func readPrivate(path string) ([]byte, error) {
	info, err := os.Stat(path) // before it is opened, which waits for ever for some things that are no files
	if err == nil && !info.Mode().IsRegular() {
		return nil, wire.Errorf(wire.CodeBadRequest, "read capability %q: not a file", path)
	}
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, wire.Errorf(wire.CodeNotFound, "read capability %q: no such file: is the node running?", path)
	case errors.Is(err, fs.ErrPermission):
		return nil, wire.Errorf(wire.CodePermissionDenied, "read capability %q: it belongs to another user: use the public address of the exchange", path)
	case err != nil:
		return nil, wire.Errorf(wire.CodeUnavailable, "read capability: %v", err)
	}
	defer func() { _ = f.Close() }()
	if info, err = f.Stat(); err != nil {
		return nil, wire.Errorf(wire.CodeUnavailable, "read capability %q: %v", path, err)
	}
	if mode := info.Mode().Perm(); shared(mode) {
		return nil, wire.Errorf(wire.CodePermissionDenied, "read capability %q: mode %04o lets others read it: run chmod 600 %s and restart the node",
			path, mode, path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxCapability+1))
	if err != nil {
		return nil, wire.Errorf(wire.CodeUnavailable, "read capability %q: %v", path, err)
	}
	return data, nil
}

func parseCapability(data []byte) (Capability, error) {
	var d struct {
		Ver       int    `json:"ver"`
		URL       string `json:"url"`
		PID       int    `json:"pid"`
		Cap       string `json:"cap"`
		PublicURL string `json:"publicUrl"`
	}
	if err := wire.Decode(data, &d, maxCapability); err != nil {
		return Capability{}, wire.Errorf(wire.CodeBadRequest, "not a capability file")
	}
	switch {
	case d.Ver != 1:
		return Capability{}, wire.Errorf(wire.CodeUnsupportedVersion, "version %d, this program knows 1", d.Ver)
	case !printable(d.Cap, 512) || strings.ContainsRune(d.Cap, ' '):
		return Capability{}, wire.Errorf(wire.CodeBadRequest, "it holds no capability")
	}
	u, err := url.Parse(d.URL)
	if err != nil || u.Host == "" || !loopback(u.Hostname()) || checkAddress(d.URL) != nil {
		return Capability{}, wire.Errorf(wire.CodeBadRequest, "address %q is not on this machine", clip(d.URL))
	}
	if d.PublicURL != "" {
		if err := checkAddress(d.PublicURL); err != nil {
			return Capability{}, err
		}
	}
	return Capability{URL: d.URL, Cap: func() string { return d.Cap }, PID: d.PID, PublicURL: d.PublicURL}, nil
}
