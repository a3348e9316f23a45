package trust_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

// TestPermissionMatrix tries every probe as every profile against a running broker and compares what it let pass with the
// checked-in table. A widened permission is a changed line of that table.
func TestPermissionMatrix(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		r := newRealm(t)
		all := universe()
		who := map[probe][]string{}
		holders := map[string]holder{}
		var order []string
		for _, p := range trust.Profiles() {
			order = append(order, string(p))
			holders[string(p)] = r.user(t, p)
		}
		for _, k := range trust.SystemKinds() {
			order = append(order, string(k))
			creds, err := r.mint.SystemUser(t.Context(), systemRequest(k))
			if err != nil {
				t.Fatal(err)
			}
			holders[string(k)] = creds
		}
		for _, name := range order {
			for p := range r.try(t, holders[name], all) {
				who[p] = append(who[p], name)
			}
		}
		var b strings.Builder
		b.WriteString("# Who may do what, as a broker answered. Written by go test ./trust -run TestPermissionMatrix -update; read every change.\n" +
			"# The holder is local.ada in space main; <uid> is her lifecycle, <uid2> that of local.bob, <n> a nonce. Her lists: subscribe general and\n" +
			"# team.>, publish general and log.*, role reviewer, command com_acme_deploy.run, and she may start agents. A line without profiles is refused to all of them.\n" +
			"# The holder of system-watcher watches <account>; AX is another.\n")
		fmt.Fprintf(&b, "# Profiles: %s\n", strings.Join(order, " "))
		for _, p := range all {
			fmt.Fprintln(&b, strings.TrimSpace(p.verb+" "+symbolic(p.subject)+"  "+strings.Join(who[p], " ")))
		}
		compareFile(t, "permissions.txt", b.String())
	})
}

// TestEveryTemplateLineIsTried wants every line of every template reached by at least one probe, so that a new line in a
// template cannot stay out of the table.
func TestEveryTemplateLineIsTried(t *testing.T) {
	all := universe()
	check := func(name string, verb string, lines []string) {
		for _, line := range lines {
			if !slices.ContainsFunc(all, func(p probe) bool { return p.verb == verb && matches(filled(line), p.subject) }) {
				t.Errorf("profile %s: nothing tries %s %s", name, verb, line)
			}
		}
	}
	for _, p := range trust.Profiles() {
		template, err := trust.Template(p, space)
		if err != nil {
			t.Fatal(err)
		}
		check(string(p), "pub", template.Pub.Allow)
		check(string(p), "sub", template.Sub.Allow)
	}
	for _, k := range trust.SystemKinds() {
		template, err := trust.SystemTemplate(k)
		if err != nil {
			t.Fatal(err)
		}
		check(string(k), "pub", template.Pub.Allow)
		check(string(k), "sub", template.Sub.Allow)
	}
}

// systemRequest asks for a credential of a kind; a watcher's is of one account.
func systemRequest(k trust.SystemKind) mint.SystemRequest {
	if k == trust.SystemWatcher {
		return mint.SystemRequest{Kind: k, Account: watched}
	}
	return mint.SystemRequest{Kind: k}
}

// filled puts ada's tags into a template line.
func filled(line string) string {
	return strings.NewReplacer("{{tag(owner)}}", "local", "{{tag(actor)}}", "ada", "{{tag(uid)}}", string(adaUID), "{{tag(inbox)}}", string(adaUID),
		"{{tag(role)}}", "reviewer", "{{tag(sub)}}", "general", "{{tag(pub)}}", "general", "{{tag(cmd)}}", "com_acme_deploy.run", "{{tag(mgr)}}", "spawn", "{{tag(eps)}}", "manager",
		"{{tag(account)}}", watched, "{{tag(instance)}}", "i1").Replace(line)
}

// matches reports whether a NATS pattern takes in a subject.
func matches(pattern, subject string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, tok := range p {
		switch {
		case tok == ">":
			return len(s) > i
		case i >= len(s), tok != "*" && tok != s[i]:
			return false
		}
	}
	return len(p) == len(s)
}

func symbolic(s string) string {
	return strings.NewReplacer(string(adaUID), "<uid>", string(bobUID), "<uid2>", nonce, "<n>", watched, "<account>").Replace(s)
}

func compareFile(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s differs from what the broker answers (-table +broker):\n%s", file, diff)
	}
}

// TestTemplatesLeaveNoListOpen is the rule behind the table: NATS reads an empty list as "everything".
func TestTemplatesLeaveNoListOpen(t *testing.T) {
	for _, p := range trust.Profiles() {
		l, err := trust.Template(p, space)
		if err != nil {
			t.Fatal(err)
		}
		if len(l.Pub.Allow)+len(l.Pub.Deny) == 0 || len(l.Sub.Allow) == 0 {
			t.Errorf("profile %s leaves a list open", p)
		}
		if l.Resp != nil || l.BearerToken || len(l.AllowedConnectionTypes) == 0 || l.Subs <= 0 {
			t.Errorf("profile %s: responses %v, bearer %v, connections %v, subscriptions %d", p, l.Resp, l.BearerToken, l.AllowedConnectionTypes, l.Subs)
		}
		for _, line := range slices.Concat(l.Pub.Allow, l.Sub.Allow) {
			if first, _, _ := strings.Cut(line, "."); line == ">" || first == "*" || first == ">" || strings.HasPrefix(line, "$JS.API.>") {
				t.Errorf("profile %s allows %s", p, line)
			}
		}
	}
	for _, bad := range []struct {
		profile trust.Profile
		space   string
	}{{"", "main"}, {"root", "main"}, {trust.Agent, ""}, {trust.Agent, "a.b"}, {trust.Agent, ">"}, {trust.Agent, "{{tag(x)}}"}} {
		if l, err := trust.Template(bad.profile, "main"); bad.space == "main" && err == nil {
			t.Errorf("Template(%q) = %v, want a refusal", bad.profile, l)
		}
	}
}
