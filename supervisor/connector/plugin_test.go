//go:build linux || darwin

package connector_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/internal/archtest"
)

// fakeHook stands for cotal hook: it notes what it is told, and has something for each turn.
const fakeHook = `#!/usr/bin/env node
import { appendFileSync, readFileSync } from "node:fs"
const event = process.argv[4]
const said = JSON.parse(readFileSync(0, "utf8"))
appendFileSync(process.env.NOTES, event + (said.page ? " " + said.page : "") + (said.error ? " " + said.error : "") + "\n")
if (process.env.OTHER) {
  process.stdout.write(JSON.stringify({ context: "", block: false, other: true }))
  process.exit()
}
if (!/^[0-9a-f-]{36}$/.test(said.session_id)) appendFileSync(process.env.NOTES, "! no session\n")
const some = said.acknowledges ? { context: "look at this", block: event === "stop", page: "p-" + event } : { context: "", block: false }
process.stdout.write(JSON.stringify(some))
`

// fakeHost is OpenCode for its plugin: takes says what becomes of a prompt that the plugin makes.
const fakeHost = `
import { Cotal } from %q
import { appendFileSync } from "node:fs"
const note = (line) => appendFileSync(process.env.NOTES, line + "\n")
let takes
const plugin = await Cotal({ client: { session: { promptAsync: (r) => takes(r.body.parts) } } })
const message = async (parts) => {
  await plugin["chat.message"]({ sessionID: "ses_1" }, { message: { id: "msg_1" }, parts })
  note("= " + parts.map((p) => p.text).join(" + "))
}
const event = (type, properties) => plugin.event({ event: { type, properties } })
const idle = () => event("session.idle", { sessionID: "ses_1" })
const shell = { env: {} }
await plugin["shell.env"]({ cwd: "/" }, shell)
for (const name of ["COTAL_HOOK_PROGRAM", "COTAL_HOOK_SESSION", "OPENCODE_CONFIG_CONTENT"]) {
  if ({ ...process.env, ...shell.env }[name]) note("! a shell has " + name)
}
if (!process.env.OPENCODE_CONFIG_CONTENT) note("! OpenCode itself has no settings to load again")
await event("session.created", { info: { id: "ses_1" } })
if (process.env.OTHER) process.exit()
takes = async () => { throw new Error("gone") }
await idle()
takes = async () => ({ error: { name: "BadRequest" } })
await idle()
await message([{ type: "text", text: "hello" }])
takes = async (parts) => { await message(parts); return {} }
await idle()
let late
takes = async (parts) => { late = new Promise((done) => setTimeout(done, 1)).then(() => message(parts)); return {} }
await idle()
await late
await event("session.error", { sessionID: "ses_2", error: { name: "APIError" } })
await event("session.error", { sessionID: "ses_1", error: { name: "MessageAbortedError" } })
await event("session.error", { sessionID: "ses_1", error: { name: "APIError", data: { statusCode: 529 } } })
`

// TestPluginAcknowledges: what waits counts as read once OpenCode has it in a message, and is not told twice; failures of subagents and an
// abort by the user are no failures of the agent. A shell has nothing by which another OpenCode is taken for the agent, and one that is all the same
// keeps no session.
func TestPluginAcknowledges(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		archtest.Skip(t, "node is not installed")
	}
	dir := t.TempDir()
	plugin, err := filepath.Abs("opencode.mjs")
	if err != nil {
		t.Fatal(err)
	}
	hook, host, notes := filepath.Join(dir, "hook.mjs"), filepath.Join(dir, "host.mjs"), filepath.Join(dir, "notes")
	for path, text := range map[string]string{hook: fakeHook, host: fmt.Sprintf(fakeHost, "file://"+plugin)} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	session := filepath.Join(dir, "session")
	env := append(os.Environ(), "COTAL_HOOK_PROGRAM="+hook, "COTAL_HOOK_SESSION="+session, "OPENCODE_CONFIG_CONTENT={}", "NOTES="+notes)
	run := func(env []string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), node, host)
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("run the plugin: %v\n%s", err, out)
		}
	}
	run(env)
	if id, err := os.ReadFile(session); err != nil || string(id) != "ses_1" {
		t.Errorf("the session is kept as %q, %v", id, err)
	}
	if err := os.WriteFile(session, []byte("ses_0"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(append(env, "OTHER=1", "NOTES="+filepath.Join(dir, "others")))
	if id, err := os.ReadFile(session); err != nil || string(id) != "ses_0" {
		t.Errorf("another process keeps its session as the agent's: %q, %v", id, err)
	}
	got, err := os.ReadFile(notes)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"session-start",
		"stop", "stop", // both prompts failed
		"prompt", "written p-prompt", "= hello + look at this",
		"stop", "written p-stop", "= look at this",
		"stop", "written p-stop", "= look at this",
		"stop APIError 529",
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(string(got)), "\n")); diff != "" {
		t.Errorf("what happened (-want +got):\n%s", diff)
	}
}
