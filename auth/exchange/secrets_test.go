package exchange_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/exchange"
)

// TestNothingIsToldOfTokens sends secrets in every way and looks for them in answers, log and decisions.
func TestNothingIsToldOfTokens(t *testing.T) {
	t.Parallel()
	const mark = "SECRETMARK"
	k := newKit(t, func(o *exchange.Options) { o.Limits.Refusals = 5 })
	k.office.person = func(context.Context, auth.PersonRequest) (auth.Admission, error) { panic(mark) }
	const form = "application/x-www-form-urlencoded"
	var seen []string
	for _, a := range []ask{
		{body: personBody(mark, "")}, {body: agentBody(mark, "")}, {body: personBody(mark, `,"ttlSec":"`+mark+`"`)}, {body: `{"idpToken":` + mark},
		{body: personBody(good, `,"view":"`+mark+`"`)}, {body: personBody(good, `,"actor":"`+mark+`."`)}, {body: personBody(good, `,"scope":["`+mark+`"]`)},
		{body: personBody(good, "")}, {kind: form, body: "grant_type=" + mark}, {kind: form, body: "%zz" + mark}, {path: "/" + mark},
		{body: "{}", header: map[string][]string{"Authorization": {"Bearer " + mark}}}, {kind: mark},
		{body: personBody(good, ""), header: map[string][]string{"Dpop": {mark}}},
		{kind: form, body: formBody("grant_type", exchange.GrantType, "subject_token", mark, "subject_token_type", mark)},
		{kind: form, body: formBody("grant_type", exchange.GrantType, "audience", mark)},
	} {
		for _, face := range faces() {
			r := k.call(face, a)
			seen = append(seen, string(r.body), fmt.Sprint(r.header))
		}
	}
	seen = append(seen, fmt.Sprintf("%+v", k.decided()), k.log.String())
	for _, s := range seen {
		if i := strings.Index(s, mark); i >= 0 {
			t.Errorf("a secret is told: …%s", s[max(0, i-80):min(len(s), i+len(mark)+20)])
		}
		if strings.Contains(s, k.cap.Reveal()) || strings.Contains(s, good) || strings.Contains(s, agentToken) {
			t.Errorf("a secret is told: %.300s", s)
		}
	}
	careless := fmt.Sprintf("%v %+v %#v %s", k.cap, exchange.Careless([]byte(personBody(mark, ""))), k.cap, k.cap)
	data, err := json.Marshal(struct{ C exchange.Capability }{k.cap})
	if err != nil {
		t.Fatal(err)
	}
	careless += string(data) + slog.AnyValue(k.cap).Resolve().String()
	if strings.Contains(careless, mark) || strings.Contains(careless, k.cap.Reveal()) {
		t.Errorf("a careless line tells a secret: %s", careless)
	}
}

func TestHookThatPanics(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(o *exchange.Options) {
		o.OnDecision = func(context.Context, exchange.Decision) { panic("the audit log is full") }
	})
	r := k.call(exchange.Public, ask{body: personBody(good, "")})
	r.want(t, 500, "internal")
	if strings.Contains(string(r.body), "token") {
		t.Errorf("a bearer left that nobody audited: %s", r.body)
	}
}
