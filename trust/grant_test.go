package trust_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

func grant(edit func(g *trust.Grant)) trust.Grant {
	g := trust.Grant{
		Ver: trust.GrantVersion, Owner: "local", Actor: "ada", UID: adaUID, Epoch: 1, Kind: trust.KindStatic, State: trust.GrantActive,
		Scope: []string{"manager.spawn"}, AllowSubscribe: []string{"general", "team.>"}, AllowPublish: []string{"general"}, Role: "reviewer",
		Label: "Ada", CreatedAt: time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC), By: "operator",
	}
	if edit != nil {
		edit(&g)
	}
	return g
}

func TestGrantRoundTrip(t *testing.T) {
	end := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, g := range []trust.Grant{
		grant(nil),
		grant(func(g *trust.Grant) {
			g.ExpiresAt, g.Parent, g.Kind, g.State = &end, "local.bob", trust.KindManaged, trust.GrantRetiring
			g.ParentUID, g.TokenHash = adaUID, strings.Repeat("0f", 32)
		}),
		grant(func(g *trust.Grant) {
			g.Scope, g.AllowPublish, g.AllowSubscribe, g.Role, g.Label = nil, nil, nil, "", ""
		}),
	} {
		data, err := g.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := trust.DecodeGrant(data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(g, got); diff != "" {
			t.Errorf("grant changed (-want +got):\n%s", diff)
		}
	}
}

// TestGrantIsReadOnce holds the price of a record as it stands in the store: every decision reads one.
func TestGrantIsReadOnce(t *testing.T) {
	data, err := grant(nil).Encode()
	if err != nil {
		t.Fatal(err)
	}
	allocations := func(data []byte) float64 {
		return testing.AllocsPerRun(100, func() {
			if _, err := trust.DecodeGrant(data); err != nil {
				t.Fatal(err)
			}
		})
	}
	once, twice := allocations(data), allocations(append([]byte(" "), data...))
	if once > twice-4 {
		t.Errorf("a grant is read with %v allocations, and with %v when we did not write it; it is read twice", once, twice)
	}
}

func TestGrantIsClosed(t *testing.T) {
	data, err := grant(nil).Encode()
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for name, bad := range map[string]string{
		"nothing":             "",
		"unknown field":       strings.Replace(text, `{`, `{"admin":true,`, 1),
		"doubled field":       strings.Replace(text, `"state":"active"`, `"state":"retired","state":"active"`, 1),
		"other case":          strings.Replace(text, `"state"`, `"State"`, 1),
		"other version":       strings.Replace(text, `"ver":1`, `"ver":2`, 1),
		"unknown state":       strings.Replace(text, `"active"`, `"live"`, 1),
		"unknown kind":        strings.Replace(text, `"static"`, `"root"`, 1),
		"no epoch":            strings.Replace(text, `"epoch":1`, `"epoch":0`, 1),
		"no author":           strings.Replace(text, `"by":"operator"`, `"by":""`, 1),
		"bad pattern":         strings.Replace(text, `"team.`, `"team`, 1),
		"bad scope":           strings.Replace(text, `"manager.spawn"`, `"manager.*"`, 1),
		"bad actor":           strings.Replace(text, `"ada"`, `"a.da"`, 1),
		"trailing data":       text + "{}",
		"long label":          strings.Replace(text, `"Ada"`, `"`+strings.Repeat("x", 129)+`"`, 1),
		"bad profile":         strings.Replace(text, `"role"`, `"profile":"root","role"`, 1),
		"profile of a person": strings.NewReplacer(`"static"`, `"interactive"`, `"role"`, `"profile":"agent","role"`).Replace(text),
		"array":               "[" + text + "]",
		"broken UTF-8":        strings.Replace(text, "Ada", "\xff", 1),
		"null":                "null",
	} {
		if g, err := trust.DecodeGrant([]byte(bad)); err == nil {
			t.Errorf("%s: read as %+v", name, g)
		} else if g.Allows(time.Now()) {
			t.Errorf("%s: what was refused permits something", name)
		}
	}
}

func TestGrantAllows(t *testing.T) {
	now := time.Date(2026, 9, 2, 0, 0, 0, 0, time.UTC)
	past, future := now.Add(-time.Second), now.Add(time.Second)
	for name, c := range map[string]struct {
		want bool
		edit func(g *trust.Grant)
	}{
		"active":         {true, nil},
		"active until":   {true, func(g *trust.Grant) { g.ExpiresAt = &future }},
		"ends now":       {false, func(g *trust.Grant) { g.ExpiresAt = &now }},
		"ended":          {false, func(g *trust.Grant) { g.ExpiresAt = &past }},
		"retiring":       {false, func(g *trust.Grant) { g.State = trust.GrantRetiring }},
		"retired":        {false, func(g *trust.Grant) { g.State = trust.GrantRetired }},
		"the zero grant": {false, func(g *trust.Grant) { *g = trust.Grant{} }},
	} {
		if got := grant(c.edit).Allows(now); got != c.want {
			t.Errorf("%s: allows = %v, want %v", name, got, c.want)
		}
	}
}

func TestGrantLimits(t *testing.T) {
	g := grant(func(g *trust.Grant) {
		for i := range trust.MaxPatterns + 1 {
			g.AllowPublish = append(g.AllowPublish, strings.Repeat("x", i+1))
		}
	})
	if _, err := g.Encode(); !errors.Is(err, wire.ErrExhausted) {
		t.Errorf("a list that is too long: %v, want resource-exhausted", err)
	}
	g = grant(func(g *trust.Grant) {
		g.AllowPublish = nil
		for i := range 20 {
			g.AllowPublish = append(g.AllowPublish, strings.Repeat("x", wire.MaxChannel-i))
		}
	})
	if _, err := g.Encode(); !errors.Is(err, wire.ErrExhausted) {
		t.Errorf("a record that is too large: %v, want resource-exhausted", err)
	}
}

func FuzzDecodeGrant(f *testing.F) {
	for _, g := range []trust.Grant{grant(nil), grant(func(g *trust.Grant) { g.State = trust.GrantRetired })} {
		data, err := g.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"ver":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := trust.DecodeGrant(data)
		if err != nil {
			return
		}
		again, err := g.Encode()
		if err != nil {
			if errors.Is(err, wire.ErrExhausted) { // escapes may lengthen what was read
				return
			}
			t.Fatalf("what was read cannot be written: %v", err)
		}
		back, err := trust.DecodeGrant(again)
		if err != nil || back.Principal() != g.Principal() || !slices.Equal(back.AllowSubscribe, g.AllowSubscribe) {
			t.Errorf("what was read does not survive a round trip: %v", err)
		}
	})
}
