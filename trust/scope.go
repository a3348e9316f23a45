package trust

import (
	"slices"
	"strings"

	"github.com/cotal-go/cotal/wire"
)

// The words of a scope. Next to them a scope holds "role:<role>" for every role that may be served or handed on, and control
// commands, "<endpoint>.<command>".
const (
	ScopeSpawn     = "spawn"     // start helpers
	ScopeAdmin     = "admin"     // ask for the views of an administrator; ends the chain of delegation upwards
	ScopeSupervise = "supervise" // run a supervisor
	scopeRole      = "role:"
)

// ScopeRole returns the entry of a scope that allows a role.
func ScopeRole(role string) string { return scopeRole + role }

// IsScopeRole reports whether an entry of a scope allows a role.
func IsScopeRole(entry string) bool { return strings.HasPrefix(entry, scopeRole) }

// ValidateScope checks one entry of a scope. Its error has code bad-request.
func ValidateScope(entry string) error {
	if slices.Contains([]string{ScopeSpawn, ScopeAdmin, ScopeSupervise}, entry) {
		return nil
	}
	if role, ok := strings.CutPrefix(entry, scopeRole); ok {
		return wire.ValidateRole(role)
	}
	if validateCommand(entry) != nil {
		return wire.Errorf(wire.CodeBadRequest, "check scope %.96q: not %q, %q, %q, role:<role> or <endpoint>.<command>",
			entry, ScopeSpawn, ScopeAdmin, ScopeSupervise)
	}
	return nil
}

// MaxScopeBytes bounds the scope of somebody who is let in by a bearer, as JSON: the bearer with the longest names beside it stays inside
// [MaxBearer].
const MaxScopeBytes = 5 << 10

// CheckScopeSize refuses a scope that no bearer has room for. Its error has code resource-exhausted.
func CheckScopeSize(of wire.Principal, scope []string) error {
	n := 1 // of the brackets; an entry has quotes and a comma, and nothing in one is escaped
	for _, e := range scope {
		n += len(e) + len(`"",`)
	}
	if n > MaxScopeBytes {
		return exhausted(n, MaxScopeBytes, "check grant of %q: its scope takes %d bytes, limit %d; name fewer or shorter entries, %d now", of, n, MaxScopeBytes, len(scope))
	}
	return nil
}

// Spawns reports whether a scope lets its holder start agents.
func Spawns(scope []string) bool { return slices.Contains(scope, ScopeSpawn) }

// ScopeCommands returns the control commands of a scope.
func ScopeCommands(scope []string) []string {
	var out []string
	for _, e := range scope {
		if strings.Contains(e, ".") && !strings.HasPrefix(e, scopeRole) {
			out = append(out, e)
		}
	}
	return out
}
