package login

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cotal-go/cotal/wire"
)

const (
	// maxAnswer bounds an answer in bytes.
	maxAnswer = 256 << 10
	// askTimeout bounds one request.
	askTimeout = 30 * time.Second
	// maxQuoted bounds what an error quotes of somebody else's text, in bytes.
	maxQuoted = 200
)

// client returns a copy of hc, or of a plain client, that follows no redirect: a token goes where it was sent and nowhere else.
func client(hc *http.Client) *http.Client {
	c := http.Client{}
	if hc != nil {
		c = *hc
	}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.Jar = nil
	return &c
}

// answer is what a server said.
type answer struct {
	address string
	status  int
	header  http.Header
	body    []byte
}

// get asks for a document.
func get(ctx context.Context, hc *http.Client, address string, header http.Header) (answer, error) {
	return ask(ctx, hc, http.MethodGet, address, header, nil)
}

// postForm sends a form, as OAuth wants it.
func postForm(ctx context.Context, hc *http.Client, address string, form url.Values) (answer, error) {
	return ask(ctx, hc, http.MethodPost, address, http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, []byte(form.Encode()))
}

// postJSON sends a document.
func postJSON(ctx context.Context, hc *http.Client, address string, header http.Header, v any) (answer, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return answer{}, wire.Errorf(wire.CodeInternal, "ask %q: %v", shown(address), err)
	}
	h := http.Header{}
	if header != nil {
		h = header.Clone()
	}
	h.Set("Content-Type", "application/json")
	return ask(ctx, hc, http.MethodPost, address, h, body)
}

// ask sends one request and reads the whole answer. Its errors are unavailable, or deadline-exceeded or cancelled when ctx ended;
// [errTimeout] is in the chain of one that took too long.
func ask(ctx context.Context, hc *http.Client, method, address string, header http.Header, body []byte) (answer, error) {
	bounded, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(bounded, method, address, bytes.NewReader(body))
	if err != nil {
		return answer{}, wire.Errorf(wire.CodeBadRequest, "ask %q: not an address", shown(address))
	}
	if header != nil {
		req.Header = header
	}
	req.Header.Set("Accept", "application/json")
	resp, err := hc.Do(req)
	if err != nil {
		return answer{}, askError(ctx, address, err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return answer{}, askError(ctx, address, err)
	case len(text) > maxAnswer:
		return answer{}, wire.Errorf(wire.CodeUnavailable, "ask %q: the answer is larger than %d bytes", shown(address), maxAnswer)
	}
	return answer{address: address, status: resp.StatusCode, header: resp.Header, body: text}, nil
}

// errTimeout marks an answer that did not come in time.
var errTimeout = errors.New("no answer in time")

func askError(ctx context.Context, address string, err error) error {
	if ended := ctx.Err(); ended != nil {
		return wire.Errorf(wire.CodeOf(ended), "ask %q: %w", shown(address), ended)
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		if ue.Timeout() {
			return wire.Errorf(wire.CodeUnavailable, "ask %q: %w", shown(address), errTimeout)
		}
		err = ue.Err // without the address, which may hold a query
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = errTimeout
	}
	return wire.Errorf(wire.CodeUnavailable, "ask %q: %w", shown(address), err)
}

// shown is an address without what may be secret in it.
func shown(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "an address that does not parse"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return clip(u.String())
}

// clip shortens somebody else's text for an error.
func clip(s string) string {
	if len(s) > maxQuoted {
		return s[:maxQuoted] + "..."
	}
	return s
}

// describe says what came instead of what was wanted.
func (a answer) describe() string {
	if to := a.header.Get("Location"); to != "" && a.status >= 300 && a.status < 400 {
		return fmt.Sprintf("%q redirects to %q (HTTP %d), which is not followed: give that address", shown(a.address), shown(to), a.status)
	}
	kind, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	if err != nil {
		kind = "no known type"
	}
	return fmt.Sprintf("%q answered HTTP %d with %d bytes of %q instead of a JSON document that is wanted here: check the address",
		shown(a.address), a.status, len(a.body), clip(kind))
}

// retryAfter is what the header of that name says (RFC 9110 section 10.2.3), zero when it says nothing.
func (a answer) retryAfter() time.Duration {
	text := strings.TrimSpace(a.header.Get("Retry-After"))
	if n, err := strconv.Atoi(text); err == nil && n > 0 {
		return seconds(float64(n))
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// fields is a JSON object of somebody who is not us: members that are absent, null or of another type read as nothing, and numbers may
// be written as text.
type fields map[string]json.RawMessage

// fields reads the answer as an object, with exact names and none twice.
func (a answer) fields() (fields, bool) { return parseFields(a.body) }

func parseFields(data []byte) (fields, bool) {
	var f fields
	if err := wire.Decode(data, &f, maxAnswer); err != nil || f == nil {
		return nil, false
	}
	return f, true
}

func (f fields) text(name string) string {
	var s string
	if json.Unmarshal(f[name], &s) != nil {
		return ""
	}
	return s
}

// number reads a number or a text that holds one; what is no finite number is 0.
func (f fields) number(name string) float64 {
	raw := string(f[name])
	if s := f.text(name); s != "" {
		raw = s
	}
	n, err := strconv.ParseFloat(raw, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		return 0
	}
	return n
}

// texts reads a text or a list of texts.
func (f fields) texts(name string) []string {
	if s := f.text(name); s != "" {
		return []string{s}
	}
	var list []string
	if json.Unmarshal(f[name], &list) != nil {
		return nil
	}
	return list
}

// seconds turns a number of seconds into a duration between zero and ten years.
func seconds(n float64) time.Duration {
	const most = 10 * 365 * 24 * 3600
	return time.Duration(min(max(n, 0), most) * float64(time.Second))
}
