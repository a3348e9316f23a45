package idptest

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// A person has a browser without JavaScript, and a name to log in with.
type person struct {
	name    string
	browser *http.Client
}

// newPerson opens a browser, and done closes it.
func newPerson(name string) (_ *person, done func(), _ error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, nil, err
	}
	transport := &http.Transport{}
	p := &person{name: name, browser: &http.Client{Jar: jar, Transport: transport, Timeout: 30 * time.Second}}
	return p, transport.CloseIdleConnections, nil
}

// A page is what a browser shows.
type page struct {
	at     *url.URL
	status int
	body   string
}

// mustBe returns an error with the page when it is not the wanted one.
func (p page) mustBe(status int, text string) error {
	if p.status == status && strings.Contains(p.body, text) {
		return nil
	}
	return fmt.Errorf("page %s, status %d: %.300q", p.at.Path, p.status, readable(p.body))
}

var (
	formRE  = regexp.MustCompile(`(?is)<form\b([^>]*)>(.*?)</form>`)
	inputRE = regexp.MustCompile(`(?is)<input\b([^>]*)>`)
	attrRE  = regexp.MustCompile(`(?is)([a-z_-]+)="([^"]*)"`)
	styleRE = regexp.MustCompile(`(?is)<style.*?</style>|<[^>]*>|\s+`)
)

// readable is the text of a page.
func readable(body string) string { return strings.TrimSpace(styleRE.ReplaceAllString(body, " ")) }

func attributes(tag string) map[string]string {
	attrs := map[string]string{}
	for _, m := range attrRE.FindAllStringSubmatch(tag, -1) {
		attrs[strings.ToLower(m[1])] = html.UnescapeString(m[2])
	}
	return attrs
}

// A form is what a page asks for.
type form struct {
	to     *url.URL
	values url.Values
	asks   map[string]bool // the fields to fill in
}

// form returns the page's first form, or nil when the page has none.
func (p page) form() (*form, error) {
	m := formRE.FindStringSubmatch(p.body)
	if m == nil {
		return nil, nil
	}
	to, err := p.at.Parse(attributes(m[1])["action"])
	if err != nil {
		return nil, err
	}
	f := &form{to: to, values: url.Values{}, asks: map[string]bool{}}
	for _, in := range inputRE.FindAllStringSubmatch(m[2], -1) {
		attrs := attributes(in[1])
		f.values.Set(attrs["name"], attrs["value"])
		f.asks[attrs["name"]] = attrs["type"] != "hidden"
	}
	return f, nil
}

func (p *person) do(r *http.Request) (page, error) {
	resp, err := p.browser.Do(r)
	if err != nil {
		return page{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return page{at: resp.Request.URL, status: resp.StatusCode, body: string(body)}, err
}

// walk opens the address of a device page and fills in form after form, as somebody would who holds the device, until a page has
// no form, asks for the code again or is an error. Who refuses presses the button "abort" as soon as there is one.
func (p *person) walk(ctx context.Context, address, userCode string, approve bool) (page, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return page{}, err
	}
	entered := false
	for range 10 {
		shown, err := p.do(r)
		if err != nil || shown.status >= http.StatusBadRequest {
			return shown, err
		}
		f, err := shown.form()
		if err != nil || f == nil || f.asks["user_code"] && entered {
			return shown, err
		}
		if f.asks["user_code"] {
			f.values.Set("user_code", userCode)
			entered = true
		}
		if f.asks["login"] {
			f.values.Set("login", p.name)
		}
		if f.asks["password"] {
			f.values.Set("password", "not looked at")
		}
		if !approve && strings.Contains(shown.body, `name="abort"`) {
			f.values.Set("abort", "yes")
		}
		r, err = http.NewRequestWithContext(ctx, http.MethodPost, f.to.String(), strings.NewReader(f.values.Encode()))
		if err != nil {
			return page{}, err
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return page{}, errors.New("the pages do not end")
}
