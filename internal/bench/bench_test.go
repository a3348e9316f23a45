package bench

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"testing"

	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/signer"
)

// TestRun runs every case once at its smallest, so that a broken case is not found by who measures.
func TestRun(t *testing.T) {
	rep, err := Run(t.Context(), &Options{Rounds: 1, Scale: 0.01})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rep.Results {
		if (Median(r.Ours) <= 0 || Median(r.Raw) <= 0) && r.Unit != "MB" { // so few messages may fit what the heap has
			t.Errorf("%s measured nothing: %+v", r.Name, r)
		}
		t.Logf("%-18s %12.0f %12.0f %-12s %.2f", r.Name, Median(r.Ours), Median(r.Raw), r.Unit, r.Ratio)
	}
}

// TestOneCore measures a rate on one core alone, and leaves the others to whatever is measured next.
func TestOneCore(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // also on a machine with one
	out, err := rate(2, 50, func(context.Context) error {
		if n := runtime.GOMAXPROCS(0); n != 1 {
			t.Errorf("work is measured on %d cores, want 1", n)
		}
		return nil
	})(t.Context())
	if err != nil || len(out) != 1 || out[0] <= 0 {
		t.Errorf("rate = %v, %v, want one figure", out, err)
	}
	if n := runtime.GOMAXPROCS(0); n != 2 {
		t.Errorf("%d cores are left after the measurement, want 2", n)
	}
}

// heard is the body of a request that is refused.
type heard struct{ body string }

func (h *heard) RoundTrip(r *http.Request) (*http.Response, error) {
	data, err := io.ReadAll(r.Body)
	h.body = string(data)
	return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody, Request: r}, err
}

// TestRequestIsThatOfOurClient holds what the exchange is measured with to what it is asked.
func TestRequestIsThatOfOurClient(t *testing.T) {
	var h heard
	x, err := login.NewExchange(&login.ExchangeOptions{URL: mounted, HTTP: &http.Client{Transport: &h}})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = x.Human(t.Context(), login.HumanRequest{IDToken: func() string { return "token" }, Actor: "me"})
	key, err := signer.Generate(signer.User)
	if err != nil {
		t.Fatal(err)
	}
	r, err := (&town{tokens: []string{"token"}}).request(t.Context(), key, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r.Body)
	if err != nil || string(got) != h.body {
		t.Errorf("measured is %s, %v, and asked is %s", got, err, h.body)
	}
}
