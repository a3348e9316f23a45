package exchange_test

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// checkRequest holds of whatever is accepted.
func checkRequest(t *testing.T, r exchange.Request) {
	t.Helper()
	most := bearer.MaxHumanLife
	switch r.Kind {
	case exchange.KindPerson:
		if r.Owner != "" {
			t.Errorf("a person with an owner: %+v", r)
		}
	case exchange.KindAgent:
		most = bearer.MaxAgentLife
		if r.Owner == "" || r.Actor == "" {
			t.Errorf("an agent without owner or actor: %+v", r)
		}
	default:
		t.Errorf("no kind: %+v", r)
	}
	if r.Proof == "" || r.Life < time.Second || r.Life > most {
		t.Errorf("proof %q, life %s", r.Proof, r.Life)
	}
	if _, err := trust.ParseView(string(r.View)); err != nil {
		t.Errorf("view %q", r.View)
	}
	for _, e := range r.Scope {
		if trust.ValidateScope(e) != nil {
			t.Errorf("scope %q", e)
		}
	}
}

func checkRefusal(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, wire.ErrBadRequest) || trust.ReasonOf(err) != trust.ReasonMalformed || len(err.Error()) > 512 {
		t.Errorf("refused with %v", err)
	}
}

func FuzzJSONBody(f *testing.F) {
	for _, c := range guardCases() {
		if len(c.ask.body) < 1024 {
			f.Add(c.ask.body)
		}
	}
	f.Add(agentBody(agentToken, `,"ttlSec":300,"view":"","scope":["role:x","delivery.history"]`))
	f.Add(personBody("\\u0000\\ud83d\\ude00", `,"actor":null,"owner":null,"actorToken":null,"view":null,"scope":null,"ttlSec":1e2`))
	f.Add(strings.Repeat("[", 100))
	f.Fuzz(func(t *testing.T, body string) {
		r, err := exchange.DecodeJSON([]byte(body))
		if err != nil {
			checkRefusal(t, err)
			return
		}
		checkRequest(t, r)
		again := map[string]any{"actor": r.Actor, "owner": r.Owner, "view": r.View, "scope": r.Scope, "ttlSec": int(r.Life / time.Second)}
		again[map[exchange.Kind]string{exchange.KindPerson: "idpToken", exchange.KindAgent: "actorToken"}[r.Kind]] = r.Proof
		data, err := json.Marshal(again)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > 64<<10 {
			return // escapes may make it longer than a body
		}
		back, err := exchange.DecodeJSON(data)
		if diff := cmp.Diff(r, back); diff != "" || err != nil {
			t.Errorf("the way back: %v\n%s", err, diff)
		}
	})
}

func FuzzFormBody(f *testing.F) {
	full := formBody("grant_type", exchange.GrantType, "subject_token", good, "subject_token_type", exchange.TypeIDToken, "audience", "main",
		"scope", "spawn admin", "actor", "ada", "view", "admin", "requested_token_type", exchange.TypeAccessToken)
	f.Add(full)
	f.Add(full + "&scope=x")
	f.Add(formBody("grant_type", exchange.GrantType, "subject_token", "x", "subject_token_type", exchange.TypeActorToken, "owner", owner, "actor", "helper"))
	f.Add("grant_type=" + exchange.GrantType + ";subject_token=x")
	f.Add("%zz=%")
	f.Add("&&&==&")
	f.Fuzz(func(t *testing.T, body string) {
		r, err := exchange.DecodeForm([]byte(body), "main")
		if err != nil {
			checkRefusal(t, err)
			return
		}
		checkRequest(t, r)
		values, err := url.ParseQuery(body)
		if err != nil {
			t.Fatal(err)
		}
		if values.Get("grant_type") != exchange.GrantType || len(values["subject_token"]) != 1 || len(values["audience"]) > 1 ||
			values.Get("audience") != "" && values.Get("audience") != "main" || values.Get("actor_token") != "" || values.Get("resource") != "" {
			t.Errorf("accepted %q", body)
		}
	})
}
