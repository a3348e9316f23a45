// What a scenario is made of: checks that are counted, a partner that is asked, and boxes for what comes.
//
// One JSON object per line. Out: {"check", "ok", "error"?} for each thing checked, {"ask": {"do", …}} when the partner is to do
// something. In: the partner's answer to an ask. The exit code is 1 when a check failed.
import { createInterface } from "node:readline";
import { isDeepStrictEqual } from "node:util";
import { within } from "./client.mjs";

// patience is how long anything may take that comes soon on a machine with nothing else to do.
export const patience = 60_000;

// --- The partner, and what a check is ---

const lines = createInterface({ input: process.stdin });
const answers = lines[Symbol.asyncIterator]();
const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");

export async function ask(what) {
  say({ ask: what });
  const { value, done } = await answers.next();
  if (done) throw new Error("the partner has gone");
  const answer = JSON.parse(value);
  if (answer.error) throw new Error(`partner could not ${what.do}: ${answer.error}`);
  return answer;
}

let failed = 0;
export async function check(title, run) {
  try {
    const late = Symbol();
    const result = await Promise.race([run(), new Promise((resolve) => setTimeout(resolve, 2 * patience, late).unref())]);
    if (result === late) throw new Error(`not done after ${2 * patience} ms`);
    say({ check: title, ok: true });
  } catch (error) {
    failed++;
    say({ check: title, ok: false, error: `${error.stack}${error.cause ? `\ncause: ${error.cause.stack}` : ""}` });
  }
}

export function must(holds, what) {
  if (!holds) throw new Error(what);
}

export function equal(got, want, what) {
  if (!isDeepStrictEqual(got, want)) throw new Error(`${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
}

export async function fails(code, run, what) {
  let result;
  try {
    result = await run();
  } catch (error) {
    if (error.code !== code) throw new Error(`${what}: want ${code}`, { cause: error });
    return error;
  }
  throw new Error(`${what}: done, with ${JSON.stringify(result)}, want ${code}`);
}

// Box keeps what came, and waits for what is still to come.
export class Box {
  items = [];
  #waiting = new Set();

  put = (item) => {
    this.items.push(item);
    for (const look of this.#waiting) look();
  };

  find(fits, what) {
    let look;
    const found = new Promise((resolve) => {
      look = () => this.items.some(fits) && resolve(this.items.find(fits));
      this.#waiting.add(look);
      look();
    });
    return within(patience, found).then((item) => {
      this.#waiting.delete(look);
      must(item !== undefined, `${what} did not come; there is ${JSON.stringify(this.items.slice(-5))}`);
      return item;
    });
  }
}

export const textOf = (message) => message.parts.find((p) => p.kind === "text")?.text;

// finish ends the scenario.
export function finish() {
  lines.close();
  process.exitCode = failed ? 1 : 0;
}
