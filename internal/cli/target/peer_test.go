package target

import (
	"testing"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestFind pins whom a name means: never a peer that only calls itself so.
func TestFind(t *testing.T) {
	known := []Peer{
		{Principal: "local.mallory", Name: "Nova", Status: "idle"},
		{Principal: "local.ghost", Name: "ghost", Status: "idle"}, // present, its grant taken away since
		{Principal: "local.ada", Name: "Ada", Status: "idle"},
	}
	grant := func(actor string, state trust.GrantState) trust.Grant {
		return trust.Grant{Owner: wire.LocalOwner, Actor: actor, State: state}
	}
	records := []trust.Grant{
		grant("ada", trust.GrantActive), grant("mallory", trust.GrantActive), grant("ghost", trust.GrantRetired),
		grant("Twin", trust.GrantActive), grant("twin", trust.GrantActive), grant("leaving", trust.GrantRetiring),
		{Owner: "u_aaaaaaaaaaaaaaaaaaaaaaaaaa", Actor: "guest", State: trust.GrantActive},
	}
	with := append([]trust.Grant{grant("nova", trust.GrantActive)}, records...)
	for _, c := range []struct {
		why    string
		grants []trust.Grant
		name   string
		want   string
		code   wire.Code
	}{
		{"an absent peer, not who borrows its name", with, "nova", "local.nova", ""},
		{"the case of a name is no secret", with, "Nova", "local.nova", ""},
		{"the exact name before another case", with, "twin", "local.twin", ""},
		{"two cases fit", with, "TWIN", "", wire.CodeConflict},
		{"a display name alone", records, "nova", "", wire.CodeConflict},
		{"a display name alone, in its own case", records, "Nova", "", wire.CodeConflict},
		{"a display name that is no actor", records, "no va", "", wire.CodeNotFound},
		{"present and revoked", records, "local.ghost", "", wire.CodeNotFound},
		{"revoked, by name", records, "leaving", "", wire.CodeNotFound},
		{"never existed", records, "local.nobody", "", wire.CodeNotFound},
		{"another owner is named in full", records, "guest", "", wire.CodeNotFound},
		{"another owner in full", records, "u_aaaaaaaaaaaaaaaaaaaaaaaaaa.guest", "u_aaaaaaaaaaaaaaaaaaaaaaaaaa.guest", ""},
		{"no principal", records, "a.b.c", "", wire.CodeBadRequest},
		{"without records at its word", nil, "nova", "local.nova", ""},
		{"without records in its own case", nil, "Nova", "local.Nova", ""},
		{"without records, present", nil, "ada", "local.ada", ""},
		{"without records, a principal", nil, "local.nova", "local.nova", ""},
		{"records that are empty", []trust.Grant{}, "nova", "", wire.CodeConflict},
	} {
		p, err := find(known, c.grants, c.name)
		if p.Principal != c.want || wire.CodeOf(err) != c.code {
			t.Errorf("%s: find(%q) = %q, %v; want %q, code %q", c.why, c.name, p.Principal, err, c.want, c.code)
		}
	}
}
