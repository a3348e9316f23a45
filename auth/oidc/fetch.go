package oidc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Bounds of one request to a provider.
const (
	maxBody      = 1 << 20
	maxHeader    = 64 << 10
	maxRedirects = 3
	fetchTimeout = 5 * time.Second
)

// newClient returns a client that follows no redirect to another host or scheme and keeps no cookies. It is made of a copy
// of what the host gave; without that it dials directly: proxies of the environment are for the host to configure.
func newClient(given *http.Client) *http.Client {
	c := http.Client{}
	if given != nil {
		c = *given
	} else {
		// A key set is read every few minutes at most: a kept connection would only be one more thing to close.
		c.Transport = &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader, TLSHandshakeTimeout: fetchTimeout}
	}
	c.Jar = nil
	c.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return fmt.Errorf("more than %d redirects", maxRedirects)
		}
		if from := via[0].URL; req.URL.Scheme != from.Scheme || req.URL.Host != from.Host {
			return fmt.Errorf("redirects to %.96q, which is another place: name the final address", req.URL.Scheme+"://"+req.URL.Host)
		}
		return nil
	}
	return &c
}

// get reads one JSON document of at most 1 MiB within 5 s, and how long the provider allows to keep it: zero when it does
// not say. The error names the address and the cause and quotes nothing of the body.
func get(ctx context.Context, client *http.Client, uri string) ([]byte, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, uri, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("get %.200q: not an address", uri)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, 0, fmt.Errorf("get %.200q: %w", uri, cause(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, 0, fmt.Errorf("get %.200q: status %d", uri, resp.StatusCode)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("get %.200q: %w", uri, cause(err))
	case len(body) > maxBody:
		return nil, 0, fmt.Errorf("get %.200q: more than %d bytes", uri, maxBody)
	case page(kind, bytes.TrimLeft(body, " \t\r\n")):
		return nil, 0, fmt.Errorf("get %.200q: a web page instead of JSON", uri)
	}
	return body, maxAge(resp.Header), nil
}

// page reports whether an answer is for people. A type alone does not make it so: some providers give JSON as text/html.
func page(kind string, body []byte) bool {
	return bytes.HasPrefix(body, []byte("<")) || kind == "text/html" && !bytes.HasPrefix(body, []byte("{"))
}

// cause takes the address out of the error of a request, which names it already.
func cause(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer in %s: %w", fetchTimeout, context.DeadlineExceeded)
	}
	return err
}

// maxAge reads the max-age of Cache-Control (RFC 9111 section 5.2.2.1), zero when there is none or no-store forbids.
func maxAge(h http.Header) time.Duration {
	var age time.Duration
	for directive := range strings.SplitSeq(strings.Join(h.Values("Cache-Control"), ","), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(directive), "=")
		switch strings.ToLower(name) {
		case "no-store", "no-cache":
			return 0
		case "max-age":
			if n, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 31); err == nil {
				age = time.Duration(n) * time.Second
			}
		}
	}
	return age
}
