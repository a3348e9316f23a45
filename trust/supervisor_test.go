package trust_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
)

// supervisorFamily is the wall round a supervisor: it serves the endpoint manager as instance i1, asks the authority for grants as itself, and
// reads who is there.
func supervisorFamily(p probe) bool {
	in := func(patterns ...string) bool {
		for _, pattern := range patterns {
			if matches(pattern, p.subject) || p.subject == pattern {
				return true
			}
		}
		return false
	}
	const me = ".local.ada.*.*"
	if p.verb == "sub" {
		return in("cotal.main.ep.one.manager.>", "cotal.main.ep.all.manager.>", "cotal.main.ep.inst.manager.i1.>", "cotal.main.eps.manager.*.*.in", "cotal.main.epm.*.manager.*.*.in",
			"cotal.main.epe.manager.*.*.peer", "cotal.main.epe.manager.*.*.agents", "cotal.main.epe.delivery.*.*.roster",
			"cotal.main.ep.reply.*.*.*"+me) || strings.HasPrefix(p.subject, "_INBOX_"+string(adaUID))
	}
	if rest, ok := strings.CutPrefix(p.subject, "cotal.main.ep.one.auth."); ok {
		command, _, _ := strings.Cut(rest, ".")
		known := command == "describe" || command == "health" || strings.HasPrefix(command, "agent-") && command != "agent-other"
		return known && in("cotal.main.ep.one.auth.*"+me)
	}
	return in("cotal.main.ep.reply.manager.i1.>", "cotal.main.epe.manager.i1.>", "cotal.main.eps.manager.*.*.out", "cotal.main.epm.*.manager.*.*.out", "cotal.main.ep.one.delivery.roster"+me,
		"cotal.main.ep.one.*.describe"+me, "cotal.main.ep.one.*.health"+me, "cotal.main.ep.all.*.health"+me)
}

// TestSupervisorReach: a supervisor mints nothing, reads no stream and speaks as nobody, by everything that is tried; nor does a thief
// of its signing key.
func TestSupervisorReach(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		r := newRealm(t)
		holders := map[string]holder{"supervisor": r.user(t, trust.Supervisor)}
		for _, v := range hostile() {
			holders["thief, "+v.name] = r.forge(t, trust.Supervisor, func(c *jwt.UserClaims) { c.Tags = v.tags })
		}
		all := append(universe(), thiefProbes()...)
		for name, h := range holders {
			nc, _, err := r.connect(h)
			if err != nil {
				continue // refused
			}
			nc.Close()
			n := 0
			for p := range r.try(t, h, all) {
				n++
				if name == "supervisor" && !supervisorFamily(p) || name != "supervisor" && !thiefOfSupervisor(p) {
					t.Errorf("%s may %s %s", name, p.verb, symbolic(p.subject))
				}
			}
			if n == 0 {
				t.Errorf("%s may nothing, so nothing is proved", name)
			}
		}
	})
}

// thiefOfSupervisor is what a thief of the signing key may be: any supervisor, and the listener of answers to anybody.
func thiefOfSupervisor(p probe) bool {
	for _, prefix := range []string{"cotal.main.chat.", "cotal.main.inst.", "cotal.main.svc.", "cotal.main.live.", "cotal.main.dlv.", "$KV.", "$JS.", "$SYS.", "$O."} {
		if strings.HasPrefix(p.subject, prefix) {
			return false
		}
	}
	t := strings.Split(p.subject, ".")
	switch {
	case p.verb == "sub":
		return strings.HasPrefix(t[0], "_INBOX_") || len(t) > 3 && (t[2] == "ep" || t[2] == "eps" || t[2] == "epm" || t[2] == "epe") && t[1] == "main"
	case len(t) < 6 || t[1] != "main":
		return false
	case t[2] == "ep" && t[3] == "reply", t[2] == "epe", t[2] == "eps", t[2] == "epm":
		return t[3] == "manager" || t[4] == "manager"
	case t[2] != "ep":
		return false
	}
	command := t[5]
	return command == "describe" || command == "health" || t[3] == "one" && (t[4] == "delivery" && command == "roster" || t[4] == "auth" && strings.HasPrefix(command, "agent-"))
}

// TestNobodyElseSeesSessions: of the profiles, those that attach reach sessions of their own life, of the modes in which they may ask
// for one, the supervisor serves them, and no other reaches any, nor does an agent that may not command agents.
func TestNobodyElseSeesSessions(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		r := newRealm(t)
		attach := map[trust.Profile][]string{
			trust.Agent: {"eps"}, trust.Operator: {"eps", "epm.owner", "epm.any"}, trust.Deployer: {"eps", "epm.owner"},
		}
		var tries []probe
		for _, p := range universe() {
			if strings.HasPrefix(p.subject, "cotal.main.eps.") || strings.HasPrefix(p.subject, "cotal.main.epm.") {
				tries = append(tries, p)
			}
		}
		for _, profile := range trust.Profiles() {
			for p := range r.try(t, r.user(t, profile), tries) {
				mode := slices.ContainsFunc(attach[profile], func(m string) bool { return strings.HasPrefix(p.subject, "cotal.main."+m+".manager.") })
				own := mode && strings.HasSuffix(p.subject, "."+string(adaUID)+map[string]string{"pub": ".in", "sub": ".out"}[p.verb])
				serves := profile == trust.Supervisor && strings.HasSuffix(p.subject, map[string]string{"pub": ".out", "sub": ".in"}[p.verb])
				if !own && !serves {
					t.Errorf("profile %s may %s %s", profile, p.verb, symbolic(p.subject))
				}
			}
		}
		plain, err := r.mint.User(t.Context(), mint.UserRequest{Space: space, Profile: trust.Agent, Principal: ada, UID: adaUID, Commands: []string{"manager.attach"}})
		if err != nil {
			t.Fatal(err)
		}
		for p := range r.try(t, plain, tries) {
			t.Errorf("an agent without agents may %s %s", p.verb, symbolic(p.subject))
		}
	})
}
