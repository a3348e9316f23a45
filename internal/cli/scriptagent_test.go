package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cotal-go/cotal/internal/cli/process"
)

// agent <variable> <field> <name>: puts a field of what cotal ps says of an agent into a variable; a dot leads into an object.
func cmdAgent(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: agent <variable> <field> <name>")
	}
	ts.Check(ts.Exec("cotal", "ps", args[2], "--json"))
	var line struct {
		Agent map[string]any `json:"agent"`
	}
	if err := json.Unmarshal([]byte(strings.TrimSpace(ts.ReadFile("stdout"))), &line); err != nil {
		ts.Fatalf("agent %s: %v: %s", args[2], err, ts.ReadFile("stdout"))
	}
	var v any = line.Agent
	for _, key := range strings.Split(args[1], ".") {
		m, ok := v.(map[string]any)
		if !ok || m[key] == nil {
			ts.Fatalf("agent %s has no field %q: %s", args[2], args[1], ts.ReadFile("stdout"))
		}
		v = m[key]
	}
	text := fmt.Sprint(v)
	if n, ok := v.(float64); ok {
		text = fmt.Sprintf("%.0f", n)
	}
	ts.Setenv(args[0], text)
}

// [!] alive <pid>: checks that a process runs, or does not at this moment.
func cmdAlive(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: [!] alive <pid>")
	}
	if _, err := process.Of(atoi(ts, args[0])); (err == nil) == neg {
		ts.Fatalf("process %s: %v", args[0], err)
	}
}

// gone <pid>: checks that a process does not run any more.
func cmdGone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: gone <pid>")
	}
	id, err := process.Of(atoi(ts, args[0]))
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ts.Check(process.Wait(ctx, id))
}

// same <a> <b>: checks that two words are the same.
func cmdSame(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 || (args[0] == args[1]) == neg {
		ts.Fatalf("same %q: not as wanted", args)
	}
}
