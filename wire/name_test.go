package wire_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/wire"
)

func TestParseSpace(t *testing.T) {
	for _, s := range []string{"main", "A", "a-b_c9", strings.Repeat("s", 64)} {
		if got, err := wire.ParseSpace(s); err != nil || string(got) != s {
			t.Errorf("ParseSpace(%q) = %q, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "a.b", "a b", "*", ">", "é", "a/b", strings.Repeat("s", 65), "a\n", "a\x00"} {
		if _, err := wire.ParseSpace(s); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("ParseSpace(%q) = %v, want bad-request", s, err)
		}
	}
}

func TestFreshNames(t *testing.T) {
	uid := regexp.MustCompile(`^[a-z0-9]{26}$`)
	nonce := regexp.MustCompile(`^[A-Za-z0-9_-]{22,64}$`)
	seen := make(map[string]bool)
	for range 1000 {
		u, id, n := string(wire.NewUID()), wire.NewID(), wire.NewNonce()
		if !uid.MatchString(u) || !nonce.MatchString(n) || len(id) < 22 {
			t.Fatalf("NewUID = %q, NewID = %q, NewNonce = %q", u, id, n)
		}
		if _, err := wire.ParseUID(u); err != nil {
			t.Fatalf("ParseUID(%q): %v", u, err)
		}
		for _, s := range []string{u, id, n} {
			if seen[s] {
				t.Fatalf("%q came twice", s)
			}
			seen[s] = true
		}
	}
}

func TestLifecycleForms(t *testing.T) {
	l := wire.Lifecycle{Principal: wire.Principal{Owner: "local", Actor: "ada"}, UID: uidA}
	for _, c := range []struct{ what, got, want string }{
		{"String", l.String(), "local.ada." + string(uidA)},
		{"Name", l.Name(), "local-ada-" + string(uidA)},
		{"Principal.String", l.Principal.String(), "local.ada"},
		{"Dash", l.Dash(), "local-ada"},
	} {
		if c.got != c.want {
			t.Errorf("%s = %q, want %q", c.what, c.got, c.want)
		}
	}
	if err := l.Validate(); err != nil {
		t.Errorf("Validate: %v", err)
	}
	for _, bad := range []wire.Lifecycle{{}, {Principal: l.Principal}, {UID: uidA}, {Principal: l.Principal, UID: "ABC"}} {
		if err := bad.Validate(); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("Validate(%+v) = %v, want bad-request", bad, err)
		}
	}
}

func TestValidators(t *testing.T) {
	for _, c := range []struct {
		name  string
		check func(string) error
		good  []string
		bad   []string
	}{
		{"actor", wire.ValidateActor, []string{"ada", "A_9"}, []string{"", "a-b", "a.b", "*", strings.Repeat("a", 65)}},
		{"role", wire.ValidateRole, []string{"reviewer", "code-review"}, []string{"", "a.b", ">", "a b", strings.Repeat("a", 65)}},
		{"command", wire.ValidateCommand, []string{"history", "channel-set"}, []string{"", "History", "a_b", "a.b", strings.Repeat("a", 33)}},
		{"endpoint", wire.ValidateEndpoint, []string{"delivery", "com.acme.deploy-2", "9.a"},
			[]string{"", ".", "a.", ".a", "a..b", "a_b", "-a", "a-", "a.-b", "Delivery", strings.Repeat("a", 65)}},
		{"channel", wire.ValidateChannel, []string{"general", "a.b.c", strings.Repeat("a", 4096)},
			[]string{"", ".", "a.", "a..b", "*", "a.>", "=defaults", "a b", strings.Repeat("a", 4097)}},
	} {
		for _, s := range c.good {
			if err := c.check(s); err != nil {
				t.Errorf("%s %q: %v", c.name, s, err)
			}
		}
		for _, s := range c.bad {
			if err := c.check(s); !errors.Is(err, wire.ErrBadRequest) {
				t.Errorf("%s %q: %v, want bad-request", c.name, s, err)
			}
		}
	}
}

// A hostile operand must not fill a log line.
func TestErrorsBoundOperands(t *testing.T) {
	_, err := wire.ParseSpace(strings.Repeat("\x1b[2J", 100_000))
	if err == nil || len(err.Error()) > 1000 || strings.ContainsRune(err.Error(), 0x1b) {
		t.Errorf("error of %d bytes: %.100q", len(err.Error()), err)
	}
}
