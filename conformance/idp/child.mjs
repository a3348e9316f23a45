// What the identity providers of this folder share: how a test starts, tells and stops one.
//
// Usage: node <provider>.mjs <settings>, where settings is a JSON object: issuer (the address clients use, which a proxy of the
// test listens on), clientId, audience, tokenLife (seconds). The script prints {"address": "127.0.0.1:<port>"} once it answers
// there. Then it takes one JSON object per line on standard input, {"do": "rotate", "id": 1} or {"do": "drop", "id": 2}, and
// answers each with a line {"id": 1} or {"id": 2, "error": <text>}. It ends when standard input does, so that it never outlives
// the test.
import { Console } from "node:console";
import { createServer } from "node:http";
import { createInterface } from "node:readline";

export const settings = JSON.parse(process.argv[2]);

globalThis.console = new Console(process.stderr); // products talk; standard output belongs to the test

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");

// run serves the requests with listener and does what the commands, functions by name, are told to.
export function run(listener, commands) {
  const lines = createInterface({ input: process.stdin });
  lines.on("close", () => process.exit(0));
  lines.on("line", async (line) => {
    const { do: name, id } = JSON.parse(line);
    try {
      await commands[name]();
      say({ id });
    } catch (error) {
      say({ id, error: error.message });
    }
  });
  const server = createServer(listener);
  server.listen(0, "127.0.0.1", () => say({ address: `127.0.0.1:${server.address().port}` }));
}
