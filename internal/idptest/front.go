package idptest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"

	"github.com/go-jose/go-jose/v4"
)

type outage int

const (
	outageNone outage = iota
	outagePage
	outageCut
)

// A front is what clients of an IdP talk to: it counts, and is down when told to be.
type front struct {
	mu      sync.Mutex // guards what follows
	next    http.Handler
	outage  outage
	counted map[string]int
}

func (f *front) open(next http.Handler) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = next
}

func (f *front) setOutage(o outage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outage = o
}

func (f *front) count(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counted[path]
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	if f.counted == nil {
		f.counted = map[string]int{}
	}
	f.counted[r.URL.Path]++
	next, out := f.next, f.outage
	f.mu.Unlock()
	switch {
	case out == outageCut:
		panic(http.ErrAbortHandler)
	case out == outagePage || next == nil:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "<!DOCTYPE html><html><head><title>503</title></head><body><h1>Service Unavailable</h1></body></html>\n")
	default:
		next.ServeHTTP(w, r)
	}
}

// keys asks the product itself for its keys.
func (f *front) keys(ctx context.Context, uri string) (*jose.JSONWebKeySet, error) {
	f.mu.Lock()
	next := f.next
	f.mu.Unlock()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, uri, http.NoBody)
	w := httptest.NewRecorder()
	next.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		return nil, fmt.Errorf("get keys: status %d", w.Code)
	}
	set := &jose.JSONWebKeySet{}
	if err := json.NewDecoder(bytes.NewReader(w.Body.Bytes())).Decode(set); err != nil {
		return nil, fmt.Errorf("decode keys: %w", err)
	}
	return set, nil
}

// proxyTo passes requests on to address, a host and port, with the Host that the client named: from it the products build the
// addresses they tell. What goes wrong is logged to out.
func proxyTo(address string, transport http.RoundTripper, out io.Writer) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: address})
			r.Out.Host = r.In.Host
		},
		Transport: transport,
		ErrorLog:  slog.NewLogLogger(slog.NewTextHandler(out, nil), slog.LevelWarn),
	}
}
