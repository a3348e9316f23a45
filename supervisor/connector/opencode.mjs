// Tells the agent's tools of the turns of OpenCode, by the hook command of cotal, and hands what that answers to the model.
import { spawn } from "node:child_process"
import { randomUUID } from "node:crypto"
import { readFileSync, writeFileSync } from "node:fs"

// What this process was given is its own: another OpenCode that the agent starts is not the agent. It outlasts a plugin that is loaded anew.
const own = (globalThis[Symbol.for("cotal.hook")] ??= {
  program: process.env.COTAL_HOOK_PROGRAM,
  kept: process.env.COTAL_HOOK_SESSION, // where the id of the agent's own session is kept, for its next start
  session: randomUUID(), // by which the tools know this process
})
delete process.env.COTAL_HOOK_PROGRAM
delete process.env.COTAL_HOOK_SESSION

const limit = 10_000 // ms for one hook

// hook tells of an event and returns the answer, {} for none: a hook that does not work must not stop the agent.
const hook = (event, detail) =>
  new Promise((done) => {
    const child = spawn(own.program, ["hook", "opencode", event], { stdio: ["pipe", "pipe", "ignore"], timeout: limit })
    let out = ""
    child.on("error", () => done({}))
    child.stdin.on("error", () => {})
    child.stdout.on("data", (data) => (out += data))
    child.on("close", () => {
      try {
        done(JSON.parse(out) ?? {})
      } catch {
        done({})
      }
    })
    child.stdin.end(JSON.stringify({ ...detail, session_id: own.session }))
  })

const resumed = () => {
  try {
    return readFileSync(own.kept, "utf8")
  } catch {
    return undefined
  }
}

let parts = 0
let given // the text that a turn was begun with, and its page, until OpenCode shows that it took it

export const Cotal = async ({ client }) => {
  if (!own.program) return {}
  let main = resumed() // the agent's own session; what its subagents do is part of its turn
  if (main) hook("session-start", { source: "startup" })
  return {
    event: async ({ event }) => {
      const at = event.properties ?? {}
      if (event.type === "session.created" && !at.info?.parentID) {
        main = at.info.id
        const { context, other } = await hook("session-start", { source: "startup" })
        if (context !== undefined && !other) writeFileSync(own.kept, at.info.id, { mode: 0o600 }) // this process is the agent's
      } else if (event.type === "permission.asked" || event.type === "permission.updated") {
        await hook("notification", { kind: "approval", message: at.title ?? at.permission ?? "" })
      } else if (event.type === "session.idle" && (!main || at.sessionID === main)) {
        const answer = await hook("stop", { acknowledges: true })
        if (answer.context) {
          given = answer
          const body = { parts: [{ type: "text", text: answer.context }] }
          const { error } = await client.session.promptAsync({ path: { id: at.sessionID }, body }).catch((error) => ({ error }))
          if (error && given === answer) given = undefined // what it said is shown again
        }
      } else if (event.type === "session.error" && (!main || !at.sessionID || at.sessionID === main)) {
        if (at.error?.name === "MessageAbortedError") return // the user's wish; the session is idle next
        await hook("stop", { error: [at.error?.name ?? "failed", at.error?.data?.statusCode].join(" ").trim() })
      }
    },
    "chat.message": async (input, output) => {
      if (given && output.parts.some((p) => p.text === given.context)) {
        const { page } = given
        given = undefined
        await hook("written", { page }) // which begins the turn
        return
      }
      const answer = await hook("prompt", { acknowledges: true })
      if (!answer.context) return
      output.parts.push({
        id: `prt_cotal${Date.now().toString(36)}${parts++}`,
        sessionID: input.sessionID,
        messageID: output.message.id,
        type: "text",
        text: answer.context,
        synthetic: true,
      })
      await hook("written", { page: answer.page })
    },
    "tool.execute.before": async (input) => {
      await hook("tool", { tool: input.tool })
    },
    // OpenCode itself reads this variable again whenever it loads its settings; what the model runs in a shell must not.
    "shell.env": async (input, output) => {
      output.env.OPENCODE_CONFIG_CONTENT = ""
    },
    dispose: async () => {
      await hook("end")
    },
  }
}
