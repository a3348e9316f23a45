package exchange_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/auth/login"
)

// sent is what our client sends, to whoever it is. It is refused.
type sent struct{ body string }

func (s *sent) RoundTrip(r *http.Request) (*http.Response, error) {
	data, err := io.ReadAll(r.Body)
	s.body = string(data)
	return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody, Request: r}, err
}

// TestBodyOfOurClientIsReadOnce holds the order of the members to that of our client: a body that is written otherwise is read twice,
// the second time for members that are not known.
func TestBodyOfOurClientIsReadOnce(t *testing.T) {
	var s sent
	x, err := login.NewExchange(&login.ExchangeOptions{URL: "https://mesh.example", HTTP: &http.Client{Transport: &s}})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = x.Human(t.Context(), login.HumanRequest{IDToken: func() string { return good }, Actor: "ada", Scope: []string{"spawn"}})
	if s.body == "" {
		t.Fatal("the client sent nothing")
	}
	allocations := func(body string) float64 {
		data := []byte(body)
		return testing.AllocsPerRun(100, func() {
			if _, err := exchange.DecodeJSON(data); err != nil {
				t.Fatal(err)
			}
		})
	}
	once, twice := allocations(s.body), allocations(strings.Replace(s.body, "{", "{ ", 1))
	if once > twice-4 {
		t.Errorf("%s is read with %v allocations, and with %v when it is written otherwise; it is read twice", s.body, once, twice)
	}
}
