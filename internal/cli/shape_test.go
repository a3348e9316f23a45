package cli_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// update rewrites golden files and reference pages instead of comparing with them. Review the difference.
var update = flag.Bool("update", false, "rewrite golden files and generated pages")

// TestJSONShapes pins the fields and their types of everything that --json prints, failures included. A field may be
// added; one that goes or changes its type breaks programs and raises the version.
func TestJSONShapes(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) }) // runs last: after every command, the one that ran the mesh too
	w := newWorld(t)
	got := map[string]string{"up": w.up()}
	got["up_again"] = w.must("up", "--json")
	got["send_msg"] = w.must("send", "msg", "general", "hello @nova", "--json")
	got["mint"] = w.must("mint", "nova", "--role", "r", "--allow-subscribe", "general", "--allow-publish", "general", "--allow-command", "x.y", "--json")
	got["send_dm"] = w.must("send", "dm", "nova", "hi", "--json")
	got["send_ask"] = w.must("send", "ask", "r", "hi", "--json")
	got["history"] = w.must("history", "general", "--json")
	got["channels_set"] = w.must("channels", "set", "general", "--description", "d", "--replay-window", "1d", "--json")
	got["channels_list"] = w.must("channels", "list", "--json")
	got["grants"] = w.must("grants", "--json")
	got["space_add"] = w.must("space", "add", "lab", "--json")
	got["space_list"] = w.must("space", "list", "--json")
	got["space_rm"] = w.must("space", "rm", "lab", "--force", "--json")
	got["config_show"] = w.must("config", "show", "--json")
	got["config_use"] = w.must("config", "use", "main", "--json")
	got["version"] = w.must("version", "--json")
	got["whoami_self"] = w.must("whoami", "--json")
	_, got["join"], _ = w.run("hello\n/dm nova hi\n/who\n/channels\n", "join", "--json")
	got["status"] = w.must("status", "--json")
	got["revoke"] = w.must("revoke", "nova", "--json")
	_, _, got["failure"] = w.run("", "space", "rm", "main", "--json")
	for name, out := range w.shapesOfDelivery() {
		got[name] = out
	}
	for name, out := range w.shapesOfPersonas() {
		got[name] = out
	}
	for name, out := range w.shapesOfAgents() {
		got[name] = out
	}
	w.beside("serve", "supervisor", "--state", "other", "--json")
	got["status_supervisors"] = w.until(`"supervisors":`, "status", "--json")
	for name, out := range got {
		t.Run(name, func(t *testing.T) {
			fields := shapes(t, out)
			if name == "stop" || name == "restart" { // how it went may be known by then; ps_ended has it
				fields = strings.Replace(fields, ".agent.mesh.gone string\n", "", 1)
			}
			golden(t, filepath.Join("testdata", "json", name+".golden"), fields)
		})
	}
}

// shapesOfAgents is what the commands about agents print.
func (w *world) shapesOfAgents() map[string]string {
	w.t.Helper()
	got := map[string]string{}
	got["spawn"] = w.must("spawn", "scribe", "--json")
	got["ps"] = w.must("ps", "--json")
	got["input"] = w.must("input", "scribe", "hi", "--json")
	got["restart"] = w.must("restart", "scribe", "--json")
	got["stop"] = w.must("stop", "scribe", "--json")
	got["ps_ended"] = w.until(`"gone":`, "ps", "--all", "--json")
	return got
}

// shapesOfDelivery is what the commands about memberships and the fate of messages print.
func (w *world) shapesOfDelivery() map[string]string {
	w.t.Helper()
	got := map[string]string{}
	w.must("mint", "nova", "--allow-subscribe", "general", "--allow-publish", "general", "--out", "nova.creds", "--json")
	w.must("join", "general", "--creds", "nova.creds")
	w.must("send", "msg", "general", "missed", "--json")
	w.must("send", "dm", "nova", "hi", "--id", "hi-1", "--json")
	got["members"] = w.untilIt("show a member that is away", func(out string) bool { // what listens may be shown a moment longer
		return strings.Contains(out, `"durable":`) && !strings.Contains(out, `"live":`)
	}, "members", "--json")
	got["roster"] = w.until(`"gone":"left"`, "roster", "--all", "--json")
	got["receipt"] = w.must("receipt", "hi-1", "--json")
	got["inbox_peek"] = w.must("inbox", "nova", "--json")
	w.must("inbox", "--creds", "nova.creds", "--json") // whether a session that ends at once shows it is chance
	_, got["join_missed"], _ = w.run("", "join", "general", "--creds", "nova.creds", "--json")
	w.must("send", "dm", "ada", "back", "--creds", "nova.creds", "--json")
	got["inbox"] = w.must("inbox", "--json")
	got["leave"] = w.must("leave", "general", "--creds", "nova.creds", "--json")
	got["history_clear"] = w.must("history", "clear", "general", "--force", "--json")
	for range 2 {
		w.must("send", "dm", "nova", "unreadable", "--json")
	}
	w.refuse("nova.creds", "cannot read it")
	got["deadletter_list"] = w.must("deadletter", "list", "--json")
	got["deadletter_show"] = w.must("deadletter", "show", "1", "--json")
	got["deadletter_requeue"] = w.must("deadletter", "requeue", "1", "--json")
	got["deadletter_drop"] = w.must("deadletter", "drop", "--all", "--force", "--json")
	return got
}

// shapesOfPersonas is what the commands about agent files and team files print.
func (w *world) shapesOfPersonas() map[string]string {
	w.t.Helper()
	got := map[string]string{}
	got["persona_new"] = w.must("persona", "new", "scout", "--prompt", "x", "--role", "r", "--description", "d", "--agent", "script", "--model", "m", "--json")
	got["persona_list"] = w.must("persona", "list", "--json")
	got["persona_show"] = w.must("persona", "show", "scout", "--json")
	got["persona_rm"] = w.must("persona", "rm", "scout", "--force", "--json")
	file := filepath.Join(w.t.TempDir(), "team.yaml")
	team := "apiVersion: cotal/v1\nkind: Team\nchannels: {planned: {subscribe: a}}\nagents: {a: {agent: script, role: r, capabilities: [spawn]}}\n"
	if err := os.WriteFile(file, []byte(team), 0o600); err != nil {
		w.t.Fatal(err)
	}
	got["team_plan"] = w.must("up", "-f", file, "--dry-run", "--json")
	return got
}

// golden compares with a checked-in file, or rewrites it.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run with -update to write it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), run with -update to accept:\n%s", path, diff)
	}
}

// shapes describes every line: one "path type" a field, the lines merged.
func shapes(t *testing.T, out string) string {
	t.Helper()
	fields := map[string]bool{}
	for line := range strings.Lines(out) {
		v := decodeJSON(t, line)
		if obj, ok := v.(map[string]any); !ok || obj["v"] != 1.0 {
			t.Errorf("line without version 1: %s", line)
		}
		shape("", v, fields)
	}
	return strings.Join(slices.Sorted(maps.Keys(fields)), "\n") + "\n"
}

func shape(path string, v any, into map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			shape(path+"."+k, e, into)
		}
	case []any:
		into[path+"[]"] = true
		for _, e := range v {
			shape(path+"[]", e, into)
		}
	default:
		into[fmt.Sprintf("%s %T", path, v)] = true
	}
}
