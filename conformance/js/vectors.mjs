// Runs the vectors that come with the contract against contract.mjs. Usage: node vectors.mjs <folder of vectors>
// Prints one JSON line per case; the exit code is 1 when one disagrees.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import * as contract from "./contract.mjs";

const { dot, sourceOf } = contract;

// readers turn an input into the lines that the vectors' README tells for its folder.
const readers = {
  subject(input) {
    const s = contract.parseSubject(input.toString());
    const kind = { chat: "channel", live: "live", inst: "direct", svc: "role", dlv: "mention" }[s.kind];
    const lines = { kind, space: s.space };
    if (s.sender) lines.sender = dot(s.sender);
    if (s.channel) lines.channel = s.channel;
    if (s.to) lines.to = dot(s.to);
    if (s.uid) lines.uid = s.uid;
    if (s.role) lines.role = s.role;
    lines.surface = refusal(() => contract.surfaces(s)) ?? "yes";
    return lines;
  },
  "reply-subject"(input) {
    const s = contract.parseReplySubject(input.toString());
    return { space: s.space, endpoint: s.endpoint, instance: s.instance, epoch: s.epoch, caller: `${dot(s.caller)}.${s.caller.uid}`, nonce: s.nonce };
  },
  "event-subject"(input) {
    return contract.parseEventSubject(input.toString());
  },
  principal(input) {
    const p = contract.parsePrincipal(input.toString());
    return { ...p, "owner known": contract.ownerIsKnown(p.owner) };
  },
  pattern(input) {
    const [pattern, other] = input.toString().split("\n");
    if (!contract.isPattern(pattern)) throw new contract.Refused("malformed-subject", "no pattern");
    return { matches: contract.matches(pattern, other), covers: contract.isPattern(other) && contract.covers(pattern, other) };
  },
  message: (input) => contract.decodeMessage(input),
  delivery(input) {
    const [subject, payload] = cut(input);
    const { subject: s } = contract.receive(subject, payload);
    return { kind: { chat: "channel", live: "live", inst: "direct", svc: "role", dlv: "mention" }[s.kind], sender: dot(s.sender) };
  },
  presence(input) {
    const [key, record] = cut(input);
    const p = contract.decodePresence(key, record);
    const lines = { status: p.status, name: p.card.name, kind: p.card.kind };
    if (p.card.role) lines.role = p.card.role;
    return { ...lines, skills: (p.card.skills ?? []).length, "channel modes": Object.keys(p.channelModes ?? {}).length };
  },
  reply: (input) => contract.decodeReply(input),
};

// judge compares what a reader made of an input with what the vector wants; it returns undefined or the disagreement.
function judge(folder, input, want) {
  const [verdict, ...rest] = want.split("\n");
  let got;
  const refused = refusal(() => (got = readers[folder](input)));
  if (verdict !== "accepted") {
    if (!refused) return "accepted";
    const reason = verdict.split(" ")[2];
    return folder !== "principal" && reason && reason !== refused ? `refused as ${refused}` : undefined;
  }
  if (refused) return `refused as ${refused}`;
  if (folder === "message" || folder === "reply") return rest[0].startsWith("long:") ? undefined : sameAs(got, rest.join("\n"));
  for (const [key, value] of Object.entries(got)) {
    const line = rest.find((l) => l.startsWith(`${key}: `))?.slice(key.length + 2);
    if (line !== undefined && line.replace(/^refused \S+ /, "") !== String(value)) return `${key} is ${value}`;
  }
  return rest.every((l) => Object.keys(got).some((k) => l.startsWith(`${k}: `)) || l === "") ? undefined : `nothing but ${Object.keys(got)}`;
}

// sameAs compares what was read with the canonical encoding: the same known fields, and foreign parts in their own words.
function sameAs(got, encoding) {
  const want = contract.decode(Buffer.from(encoding), 1 << 20, 40);
  for (const key of Object.keys(want)) {
    if (key === "parts") {
      if (got.parts.length !== want.parts.length) return "other parts";
      for (const [i, part] of want.parts.entries()) {
        if (part.kind.includes(".") && sourceOf(part) !== sourceOf(got.parts[i])) return `part ${i} was changed`;
        if (Object.keys(part).some((k) => !isDeepStrictEqual(part[k], got.parts[i][k]))) return `part ${i} differs`;
      }
    } else if (key === "from" || key === "error") {
      if (Object.keys(want[key]).some((k) => !isDeepStrictEqual(want[key][k], got[key][k] ?? ""))) return `${key} differs`;
    } else if (!isDeepStrictEqual(want[key], got[key])) return `${key} differs`;
  }
}

function refusal(fn) {
  try {
    fn();
  } catch (e) {
    if (!(e instanceof contract.Refused)) throw e;
    return e.reason;
  }
}

const cut = (input) => [input.subarray(0, input.indexOf(10)).toString(), input.subarray(input.indexOf(10) + 1)];

// sections reads a text archive: bytes, because inputs need not be text.
function sections(file) {
  const found = new Map();
  const data = readFileSync(file);
  let current;
  for (let at = 0; at < data.length; ) {
    const end = data.indexOf(10, at) < 0 ? data.length : data.indexOf(10, at) + 1;
    const line = data.subarray(at, end);
    const mark = /^-- (.+) --\r?\n?$/.exec(line.toString("latin1"));
    if (mark) found.set((current = mark[1]), []);
    else if (current) found.get(current).push(line);
    at = end;
  }
  return new Map([...found].map(([k, lines]) => [k, Buffer.concat(lines).subarray(0, -1)]));
}

// generate puts a .gen section together.
function generate(recipe) {
  const pieces = [];
  for (const line of recipe.toString().split("\n")) {
    const [, word, rest] = /^(\S+) ?(.*)$/.exec(line) ?? [];
    if (word === "text") pieces.push(Buffer.from(rest));
    else if (word === "repeat") pieces.push(Buffer.from(rest.slice(rest.indexOf(" ") + 1).repeat(Number.parseInt(rest, 10))));
    else if (word === "hex") pieces.push(Buffer.from(rest.replaceAll(" ", ""), "hex"));
    else if (line !== "") throw new Error(`no recipe: ${line}`);
  }
  return Buffer.concat(pieces);
}

const top = process.argv[2];
let failed = 0;
for (const folder of Object.keys(readers)) {
  for (const file of readdirSync(join(top, folder)).sort()) {
    const all = sections(join(top, folder, file));
    for (const [title, want] of all) {
      if (!title.endsWith(".want")) continue;
      const label = title.slice(0, -".want".length);
      const input = all.get(`${label}.in`) ?? generate(all.get(`${label}.gen`));
      const wrong = judge(folder, input, want.toString());
      if (wrong) failed++;
      console.log(JSON.stringify({ vector: `${folder}/${file}: ${label}`, ok: !wrong, got: wrong, want: wrong && want.toString().slice(0, 200) }));
    }
  }
}
process.exitCode = failed ? 1 : 0;
