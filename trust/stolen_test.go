package trust_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
)

// TestStolenAgentKeyIsRefused plays a thief of the agent signing key who writes JWTs of its own.
func TestStolenAgentKeyIsRefused(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		r := newRealm(t)
		other, err := r.mint.Account(t.Context(), otherSpace)
		if err != nil {
			t.Fatal(err)
		}
		tags := trustTags("local", "ada", string(adaUID))
		control := r.forge(t, trust.Agent, func(c *jwt.UserClaims) { c.Tags = tags })
		nc, _, err := r.connect(control)
		if err != nil {
			t.Fatalf("the forgery that says nothing of its own must connect, or the others prove nothing: %v", err)
		}
		nc.Close()
		for name, edit := range map[string]func(*jwt.UserClaims){
			"own permissions": func(c *jwt.UserClaims) {
				c.Permissions = jwt.Permissions{Pub: jwt.Permission{Allow: jwt.StringList{">"}}}
			},
			"own subscribe permission": func(c *jwt.UserClaims) { c.Sub.Allow = jwt.StringList{"cotal.main.inst.>"} },
			"unscoped":                 func(c *jwt.UserClaims) { c.SetScoped(false) },
			"own limits":               func(c *jwt.UserClaims) { c.Limits.Payload = 1 << 30 },
			"bearer":                   func(c *jwt.UserClaims) { c.BearerToken = true },
			"responses":                func(c *jwt.UserClaims) { c.Resp = &jwt.ResponsePermission{MaxMsgs: -1} },
			"connection type":          func(c *jwt.UserClaims) { c.AllowedConnectionTypes = jwt.StringList{jwt.ConnectionTypeLeafnode} },
			"another space":            func(c *jwt.UserClaims) { c.IssuerAccount = other.Public },
			"the system account":       func(c *jwt.UserClaims) { c.IssuerAccount = r.mint.SystemPublic() },
			"no account":               func(c *jwt.UserClaims) { c.IssuerAccount = "" },
			"expired":                  func(c *jwt.UserClaims) { c.Expires = time.Now().Add(-time.Minute).Unix() },
			"without the deny tag":     func(c *jwt.UserClaims) { c.Tags = slices.DeleteFunc(slices.Clone(tags), isDenyTag) },
			"a deny tag with wildcard": func(c *jwt.UserClaims) {
				c.Tags = append(slices.DeleteFunc(slices.Clone(tags), isDenyTag), "nosub:>.x")
			},
			"too many expansions": func(c *jwt.UserClaims) { c.Tags = append(tags, many("owner:x%d", 100, "actor:x%d", 100)...) },
		} {
			f := r.forge(t, trust.Agent, func(c *jwt.UserClaims) {
				c.Tags = tags
				edit(c)
			})
			if nc, _, err := r.connect(f); !errors.Is(err, nats.ErrAuthorization) && !errors.Is(err, nats.ErrAuthExpired) {
				nc.Close()
				t.Errorf("%s: connect = %v, want an authorization violation", name, err)
			}
		}
	})
}

// TestAccountKeysMintNothing: a space has no unscoped key. Its own seed is not kept, and would not be accepted.
func TestAccountKeysMintNothing(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		r := newRealm(t)
		keys, err := r.store.List(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		account, err := r.mint.Account(t.Context(), space)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if !strings.HasSuffix(key, ".nk") {
				continue
			}
			seed, err := r.store.Get(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			s, err := signer.FromSeed(signer.NewSeed(seed))
			if err != nil {
				t.Fatal(err)
			}
			if s.Public() == account.Public || s.Public() == r.mint.SystemPublic() {
				t.Errorf("%s is the seed of an account itself", key)
			}
			pair, err := nkeys.FromSeed(seed)
			if err != nil {
				t.Fatal(err)
			}
			f, signed := unscoped(t, pair, account.Public)
			if !signed {
				continue
			}
			if nc, _, err := r.connect(f); !errors.Is(err, nats.ErrAuthorization) {
				nc.Close()
				t.Errorf("a user with its own permissions, signed by %s: connect = %v, want a refusal", key, err)
			}
		}
	})
}

// TestStolenAgentKeyReach shows what a thief of the agent signing key can do: be any agent of that space. Every way to
// write tags that we could think of is tried against the broker, and what passed is a checked-in table.
func TestStolenAgentKeyReach(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		r := newRealm(t)
		all := append(universe(), thiefProbes()...)
		var b strings.Builder
		b.WriteString("# What a thief of the agent signing key of space main reaches with hostile tags, as a broker answered. Written by\n" +
			"# go test ./trust -run TestStolenAgentKeyReach -update. The thief can be any agent of the space: speak as it, read what agents may\n" +
			"# read, call what agents may be granted, command a supervisor as one that it names, take part in the terminal sessions of a life that it\n" +
			"# names, and listen to the answers that delivery gives to any caller, an admin included. It reaches neither the authority nor a command\n" +
			"# that acts beyond what was started under the caller, and no wildcard takes in a session. Nothing here may be outside those families; the\n" +
			"# test checks that by itself. The remedy is to rotate and retire the key.\n")
		for _, v := range hostile() {
			f := r.forge(t, trust.Agent, func(c *jwt.UserClaims) { c.Tags = v.tags })
			fmt.Fprintf(&b, "\n%s: %q\n", v.name, symbolicTags(v.tags))
			nc, _, err := r.connect(f)
			if err != nil {
				b.WriteString("  refused to connect\n")
				continue
			}
			nc.Close()
			allowed := r.try(t, f, all)
			for _, p := range all {
				if !allowed[p] {
					continue
				}
				fmt.Fprintf(&b, "  %s %s\n", p.verb, symbolic(p.subject))
				if !agentFamily(p) {
					t.Errorf("%s: a stolen agent key may %s %s, which is no business of agents", v.name, p.verb, p.subject)
				}
			}
		}
		compareFile(t, "stolen-agent-key.txt", b.String())
	})
}

// hostile are the ways to write tags.
func hostile() []struct {
	name string
	tags []string
} {
	deny := "nosub:="
	lists := []string{"sub:>", "pub:>", "role:*", "role:writer", "cmd:*.*", "mgr:*", "eps:*", "instance:*"}
	with := func(owner, actor, uid, inbox string, more ...string) []string {
		return append([]string{"owner:" + owner, "actor:" + actor, "uid:" + uid, "inbox:" + inbox, deny}, more...)
	}
	return []struct {
		name string
		tags []string
	}{
		{"another agent", with("local", "bob", string(bobUID), string(bobUID), lists...)},
		{"every wildcard", with("*", "*", "*", "*", lists...)},
		{"full wildcards", with(">", ">", ">", ">", "sub:>", "pub:>", "role:>", "cmd:>", "mgr:>", "eps:>")},
		{"dots that shift tokens", with("local.bob", "local.ada", string(adaUID), "x.>", "sub:a.b", "pub:a.b.>", "role:a.b", "cmd:a.b.c", "mgr:a.b", "eps:manager.s1", "eps:a.b", "eps:any.manager", "instance:i1.e1")},
		{"dots that reach other rails", with("x.y.z", "w", "v", "y", "cmd:one.two.three.four")},
		{"spaces and control characters", with("lo cal", "a\tda", "a\nb", "in box", "sub:a b", "pub: >", "cmd:a b.c", "role:a b")},
		{"empty values", with("", "", "", "", "sub:", "pub:", "role:", "cmd:")},
		{"templates in values", with("{{name()}}", "{{subject()}}", "{{tag(owner)}}", "{{tag(inbox)}}", "sub:{{name()}}", "pub:{{account-name()}}")},
		{"dollar and root", with("$JS", "$SYS", "$KV", "$JS", "sub:$JS.API.>", "pub:$SYS.>", "cmd:$JS.API", "role:$JS")},
		{"reserved commands", with("local", "ada", string(adaUID), string(adaUID), "cmd:delivery.channel-set", "cmd:delivery.enrol", "cmd:delivery.purge",
			"cmd:delivery.trace", "cmd:delivery.inbox", "cmd:delivery.*", "cmd:*.channel-set")},
		{"targets beyond its owner", with("local", "ada", string(adaUID), string(adaUID), "cmd:manager.stop.any.local", "cmd:manager.stop.any.*",
			"cmd:manager.stop.exact.local.bob."+string(bobUID), "cmd:manager.*.any.*", "cmd:*.*.*.*", "cmd:manager.stop.owner.*")},
		{"commands of a supervisor", with("local", "ada", string(adaUID), string(adaUID), "mgr:*", "mgr:input", "mgr:stop.any.local", "mgr:stop.any.*",
			"mgr:*.any.*", "mgr:stop.exact.local.bob."+string(bobUID), "mgr:stop.owner.local", "mgr:stop.owner.*", "mgr:*.*", "mgr:*.*.*", "mgr:i1.stop", "cmd:manager.input",
			"cmd:manager.*", "cmd:manager.spawn.any.local")},
		{"commands of the authority", with("local", "supervisor", string(adaUID), string(adaUID), "cmd:auth.agent-grant", "cmd:auth.*", "cmd:*.agent-grant", "cmd:*.*",
			"cmd:auth.agent-grant.any.local", "mgr:agent-grant")},
		{"sessions of all", with("local", "ada", "*", string(adaUID), "mgr:*", "eps:*", "eps:manager")},
		{"sessions of some and of all", append(with("local", "ada", string(adaUID), string(adaUID)), "uid:*", "uid:"+string(bobUID), "eps:manager")},
		{"dots that shift the uid", with("local", "ada", "*.*", string(adaUID), "mgr:attach", "eps:manager")},
		{"dots that name a mode", with("local", "ada", "*."+string(bobUID), string(adaUID), "mgr:attach", "eps:manager", "eps:any.manager", "eps:manager.any", "eps:*.*")},
		{"many values", append(with("local", "ada", string(adaUID), string(adaUID)), append(many("actor:bob%d", 3, "uid:u%d", 3), "eps:manager")...)},
		{"claims to be an admin", with("local", "ada", string(adaUID), string(adaUID), "profile:admin", "space:other", "scope:admin")},
		{"no tags but the deny", []string{deny}},
	}
}

func many(formatA string, a int, formatB string, b int) []string {
	var out []string
	for i := range a {
		out = append(out, fmt.Sprintf(formatA, i))
	}
	for i := range b {
		out = append(out, fmt.Sprintf(formatB, i))
	}
	return out
}

// thiefProbes are subjects that only hostile tags could reach.
func thiefProbes() []probe {
	return slices.Concat(
		pubs("cotal.main.chat.", "local.bob.secret.deep", "*.*.general", "x.y.z.w.a", "$JS.$SYS.$SYS.x"),
		pubs("cotal.main.ep.one.", "delivery.channel-set.any.local.local.ada."+string(adaUID)+"."+nonce, "one.two.three.four.local.ada."+string(adaUID)+"."+nonce,
			"manager.stop.exact.local.ada."+string(bobUID)+".local.ada."+string(adaUID)+"."+nonce, "$JS.API.local.ada.x."+nonce, "delivery.history.x.y.z.w.v."+nonce,
			"manager.kill.local.ada."+string(adaUID)+"."+nonce),
		pubs("cotal.main.ep.", "all.manager.stop.any.local.local.ada.*."+nonce, "inst.manager.i1.stop.owner.u_x.local.ada."+string(adaUID)+"."+nonce,
			"inst.manager.i1.input.any.local.local.ada."+string(adaUID)+"."+nonce, "one.auth.agent-grant.local.supervisor."+string(adaUID)+"."+nonce,
			"one.auth.agent-retire.local.supervisor."+string(adaUID)+"."+nonce, "one.auth.health.local.supervisor."+string(adaUID)+"."+nonce,
			"inst.auth.i1.agent-grant.local.supervisor."+string(adaUID)+"."+nonce),
		pubs("cotal.main.eps.manager.", "s1.x.in", "s1.*.in", "*.*.in", "s1.s2.s3.in"),
		subs("cotal.main.eps.", "*.*.*.out", "manager.s1.*.out", "manager.s1.>", "manager.*.>", "manager.*.*.*.out"),
		pubs("cotal.main.", "inst.x.y.local.bob.local.ada", "svc.reviewer.local.bob.local.ada", "ep.all.delivery.health.local.bob.local.ada."+string(adaUID)+"."+nonce),
		pubs("$KV.cotal_presence_main.", "local.bob.local.ada", "x.y.z.w", "$JS.$SYS", "*.*"),
		pubs("$JS.API.CONSUMER.", "MSG.NEXT.DM_main.dm_*-*-*", "MSG.NEXT.TASK_main.svc_*", "MSG.NEXT.TASK_main.svc_a.b", "INFO.DM_main.>", "MSG.NEXT.DM_main.*"),
		subs("cotal.main.", "live.*.*.a.b", "live.*.*.$JS.API.>", "ep.reply.*.*.*.*.*.*.*", "ep.reply.*.*.*.>", "epe.*.*.*.goal.>", "epe.*.*.*.goal.*.*.*.>",
			"epe.*.*.*.session.*.*.*.>", "epe.delivery.*.*.>", "epe.delivery.*.*.receipt.*.*.>", "dlv.*.*.*.>", "dlv.local.bob.local.ada."+string(adaUID)),
		subs("", "_INBOX_*.>", "_INBOX_>", "_INBOX_x.>", "_INBOX_y.>", "_INBOX_$JS.>", "_INBOX_.>", "$KV.cotal_presence_main.*.*.>"),
	)
}

// agentFamily is the wall: what agents of space main do, whoever they claim to be.
func agentFamily(p probe) bool {
	tokens := strings.Split(p.subject, ".")
	has := func(prefix string) bool { return strings.HasPrefix(p.subject, prefix) }
	if has("cotal.main.eps.") { // of the lives that the thief names, one by one, at any endpoint: a wildcard for a life reaches none
		life := tokens[min(5, len(tokens)-1)]
		return len(tokens) == 7 && (life == string(adaUID) || life == string(bobUID)) && tokens[6] == map[string]string{"pub": "in", "sub": "out"}[p.verb]
	}
	if p.verb == "sub" {
		return has("cotal.main.live.") || has("cotal.main.ep.reply.") || has("cotal.main.epe.delivery.*.*.roster") || has("cotal.main.dlv.") ||
			has("cotal.main.epe.delivery.*.*.receipt.") || strings.HasPrefix(tokens[0], "_INBOX_") ||
			has("cotal.main.epe.") && len(tokens) > 6 && (tokens[6] == "goal" || tokens[6] == "session")
	}
	for _, stream := range []string{"DM_main.dm_", "TASK_main.svc_"} {
		for _, verb := range []string{"$JS.API.CONSUMER.MSG.NEXT.", "$JS.API.CONSUMER.INFO.", "$JS.ACK."} {
			if has(verb + stream) {
				return true
			}
		}
	}
	if rail, ok := strings.CutPrefix(p.subject, "cotal.main.ep."); ok {
		return agentCalls(strings.Split(rail, "."))
	}
	return has("cotal.main.chat.") || has("cotal.main.inst.") || has("cotal.main.svc.") || has("$KV.cotal_presence_main.")
}

// agentCalls says which requests agents make: by rail, endpoint, instance on the rail of instances, command and mode.
func agentCalls(t []string) bool {
	rail, endpoint := t[0], t[1]
	if rail == "inst" {
		t = slices.Delete(slices.Clone(t), 2, 3)
	}
	command, mode := t[2], t[3]
	switch {
	case endpoint == "auth", mode == "any", mode == "exact", mode == "owner", trust.ReservedCommand(endpoint + "." + command):
		return false
	case rail == "one":
		return true
	case rail == "all" && command == "health":
		return true
	}
	return endpoint == "manager"
}

func trustTags(owner, actor, uid string) []string {
	return []string{"owner:" + owner, "actor:" + actor, "uid:" + uid, "inbox:" + uid, "nosub:="}
}

func isDenyTag(tag string) bool { return strings.HasPrefix(tag, "nosub:") }

func symbolicTags(tags []string) []string {
	out := make([]string, len(tags))
	for i, tag := range tags {
		out[i] = symbolic(tag)
	}
	return out
}
