package actor_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/cli/actor"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	one = "u_g5mclrofwa6pirb3p4yeigemze"
	two = "u_g5aaaaaaaaaaaaaaaaaaaaaaaa"
)

func grant(owner, name string, uid wire.UID, state trust.GrantState, under ...wire.UID) trust.Grant {
	g := trust.Grant{Owner: owner, Actor: name, UID: uid, State: state}
	if len(under) > 0 {
		g.Parent, g.ParentUID = owner+".x", under[0]
	}
	return g
}

func TestFind(t *testing.T) {
	all := []trust.Grant{
		grant(one, "ada", "1", trust.GrantActive), grant(two, "ada", "2", trust.GrantRetired), grant(one, "bob", "3", trust.GrantActive),
		grant(two, "bob", "4", trust.GrantRetiring), grant(one, "old", "5", trust.GrantRetired),
	}
	for _, c := range []struct {
		name, owner string
		want        wire.UID
		code        wire.Code
	}{
		{"ada", "", "1", ""}, {"ada", two, "2", ""}, {"old", "", "5", ""}, {"bob", two, "4", ""},
		{"bob", "", "", wire.CodeConflict}, {"ghost", "", "", wire.CodeNotFound}, {"old", two, "", wire.CodeNotFound},
	} {
		g, err := actor.Find(all, c.name, c.owner, "show")
		if g.UID != c.want || err != nil && wire.CodeOf(err) != c.code || err == nil && c.code != "" {
			t.Errorf("find %q of %q = %q, %v; want %q, %s", c.name, c.owner, g.UID, err, c.want, c.code)
		}
	}
	_, err := actor.Find(all, "bob", "", "show")
	want := []string{"cotal actor show bob --owner " + one, "cotal actor show bob --owner " + two}
	if hints := command.Hints(err); !slices.Equal(hints, want) {
		t.Errorf("hints %q, want %q", hints, want)
	}
}

func TestOwnerOf(t *testing.T) {
	all := []trust.Grant{grant(one, "ada", "1", trust.GrantActive), grant(two, "ada", "2", trust.GrantActive)}
	for given, want := range map[string]string{
		one: one, "u_g5mclrof…": one, "u_g5m": one, "u_g5a": two, "local": "local", "u_g5": "", "u_": "", "": "", "u_zzz": "", "x": "",
		"u_bbbbbbbbbbbbbbbbbbbbbbbbba": "u_bbbbbbbbbbbbbbbbbbbbbbbbba",
	} {
		if got, err := actor.OwnerOf(all, given); got != want || (err == nil) != (want != "") {
			t.Errorf("owner %q = %q, %v; want %q", given, got, err, want)
		}
	}
}

func TestTree(t *testing.T) {
	all := []trust.Grant{
		grant(one, "a", "1", trust.GrantActive), grant(one, "b", "2", trust.GrantActive, "1"), grant(one, "c", "3", trust.GrantActive, "2"),
		grant(one, "d", "4", trust.GrantActive, "gone"), grant(one, "e", "5", trust.GrantActive, "1"),
		grant(one, "x", "6", trust.GrantActive, "7"), grant(one, "y", "7", trust.GrantActive, "6"), // a circle
	}
	out, depth := actor.Tree(all)
	var got []string
	for i, g := range out {
		got = append(got, strings.Repeat("-", depth[i])+g.Actor)
	}
	if want := []string{"a", "-b", "--c", "-e", "d", "y", "-x"}; !slices.Equal(got, want) {
		t.Errorf("tree %q, want %q", got, want)
	}
}

func TestParseEnd(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Time{
		"30d": now.AddDate(0, 0, 30), "90m": now.Add(90 * time.Minute), "2027-01-31T10:00:00Z": time.Date(2027, 1, 31, 10, 0, 0, 0, time.UTC),
		"2027-01-31": time.Date(2027, 1, 31, 0, 0, 0, 0, time.Local), "2027-01-31 10:30": time.Date(2027, 1, 31, 10, 30, 0, 0, time.Local), "never": {},
	} {
		if got, err := actor.ParseEnd(in, true, now); err != nil || !got.Equal(want) {
			t.Errorf("end %q = %v, %v; want %v", in, got, err, want)
		}
	}
	if got, err := actor.ParseEnd("", false, now); got != nil || err != nil {
		t.Errorf("no end named = %v, %v; want nil", got, err)
	}
	for _, in := range []string{"", "soon", "-3h", "0s", "2027-13-01"} {
		if got, err := actor.ParseEnd(in, true, now); err == nil {
			t.Errorf("end %q = %v, want a refusal", in, got)
		}
	}
}
