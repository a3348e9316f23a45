package wire_test

import (
	"errors"
	"testing"

	"github.com/cotal-go/cotal/wire"
)

func TestAuditSubjects(t *testing.T) {
	for _, c := range []struct {
		build           func(wire.Space, wire.Principal, string, string) (string, error)
		target          wire.Principal
		action, outcome string
		want            string
	}{
		{wire.AuditSubject, ada, "revoke", "ok", "$JS.EVENT.AUDIT_main.local.ada.revoke.ok"},
		{wire.AuditSubject, wire.Principal{}, "space-add", "failed", "$JS.EVENT.AUDIT_main.-.-.space-add.failed"},
		{wire.AuditFilter, ada, "", "", "$JS.EVENT.AUDIT_main.local.ada.*.*"},
		{wire.AuditFilter, wire.Principal{}, "connect", "", "$JS.EVENT.AUDIT_main.*.*.connect.*"},
		{wire.AuditFilter, wire.Principal{}, "", "denied", "$JS.EVENT.AUDIT_main.*.*.*.denied"},
	} {
		if got, err := c.build("main", c.target, c.action, c.outcome); err != nil || got != c.want {
			t.Errorf("of %q %q %q: got %q, %v, want %q", c.target, c.action, c.outcome, got, err, c.want)
		}
	}
	for _, evil := range []string{"*", ">", "a.b", "a.>", "A", "a b", "-.-", "é", "a\x00"} {
		for name, build := range map[string]func() (string, error){
			"space": func() (string, error) { return wire.AuditSubject(wire.Space("x"+evil+" "), ada, "a", "b") },
			"owner": func() (string, error) {
				return wire.AuditSubject("main", wire.Principal{Owner: evil, Actor: "a"}, "a", "b")
			},
			"actor": func() (string, error) {
				return wire.AuditSubject("main", wire.Principal{Owner: "local", Actor: evil + "."}, "a", "b")
			},
			"action":  func() (string, error) { return wire.AuditSubject("main", ada, evil, "b") },
			"outcome": func() (string, error) { return wire.AuditSubject("main", ada, "a", evil) },
			"filter target": func() (string, error) {
				return wire.AuditFilter("main", wire.Principal{Owner: evil, Actor: "a"}, "", "")
			},
			"filter action":  func() (string, error) { return wire.AuditFilter("main", ada, evil, "") },
			"filter outcome": func() (string, error) { return wire.AuditFilter("main", ada, "", evil) },
		} {
			if got, err := build(); !errors.Is(err, wire.ErrBadRequest) || got != "" {
				t.Errorf("%s with %q = %q, %v, want bad-request", name, evil, got, err)
			}
		}
	}
	if got, err := wire.AuditSubject("main", ada, "", "ok"); err == nil {
		t.Errorf("subject without an action = %q, want bad-request", got)
	}
}
