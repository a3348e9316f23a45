// The parts of the contract that need no connection: names and subjects (section 3), JSON (section 4) and the shapes of
// what travels (sections 5, 8, 10 and 11). Written from SPEC.md; the IDs in brackets are its requirements.

// Refused is thrown for what a receiver must not accept. Its reason is one of [MSG-6].
export class Refused extends Error {
  constructor(reason, message) {
    super(message);
    this.reason = reason;
  }
}

const badSubject = (message) => new Refused("malformed-subject", message);
const badJSON = (message) => new Refused("malformed-json", message);
const badSender = (message) => new Refused("sender-mismatch", message);

// --- Names ---

const grammars = {
  space: /^[A-Za-z0-9_-]{1,64}$/,
  role: /^[A-Za-z0-9_-]{1,64}$/,
  instance: /^[A-Za-z0-9_-]{1,64}$/,
  epoch: /^[A-Za-z0-9_-]{1,64}$/,
  owner: /^[A-Za-z0-9_]{1,64}$/,
  actor: /^[A-Za-z0-9_]{1,64}$/,
  uid: /^[a-z0-9]{26}$/,
  segment: /^[A-Za-z0-9_-]+$/,
  label: /^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/,
  command: /^[a-z0-9-]{1,32}$/,
  requestID: /^[A-Za-z0-9_-]{1,64}$/,
  nonce: /^[A-Za-z0-9_-]{22,64}$/,
};

export function isName(kind, text) {
  if (typeof text !== "string") return false;
  if (kind === "channel") return bytes(text) <= 4096 && text.split(".").every((s) => grammars.segment.test(s));
  if (kind === "endpoint") return bytes(text) <= 64 && text.split(".").every((s) => grammars.label.test(s));
  return grammars[kind].test(text);
}

// name returns text when it fits the grammar; nothing is ever folded or trimmed to make it fit [SUB-1].
export function name(kind, text, refuse = badSubject) {
  if (!isName(kind, text)) throw refuse(`${JSON.stringify(text)} is no ${kind}`);
  return text;
}

export const ownerIsKnown = (owner) => owner === "local" || /^u_[a-z2-7]{26}$/.test(owner);

// parsePrincipal reads the dot form.
export function parsePrincipal(text, refuse = badSender) {
  const tokens = typeof text === "string" ? text.split(".") : [];
  if (tokens.length !== 2) throw refuse(`${JSON.stringify(text)} is no principal`);
  return { owner: name("owner", tokens[0], refuse), actor: name("actor", tokens[1], refuse) };
}

const bytes = (text) => Buffer.byteLength(text);

// --- Channel patterns ---

export function isPattern(pattern) {
  if (typeof pattern !== "string" || bytes(pattern) > 4096) return false;
  const segments = pattern.split(".");
  return segments.every((s, i) => s === "*" || (s === ">" && i === segments.length - 1) || grammars.segment.test(s));
}

// covers says whether all that inner takes in, outer takes in too. A channel is a pattern that takes in itself.
export function covers(outer, inner) {
  const a = outer.split("."), b = inner.split(".");
  for (let i = 0; i < a.length; i++) {
    if (i >= b.length) return false; // [SUB-6]: "a.>" needs a further segment
    if (a[i] === ">") return true;
    if (b[i] === ">" || (a[i] !== "*" && a[i] !== b[i])) return false;
  }
  return a.length === b.length;
}

export const matches = (pattern, channel) => isName("channel", channel) && covers(pattern, channel);

// --- Subjects ---

// parseSubject reads the subject of a delivered message [SUB-3].
export function parseSubject(subject) {
  const [root, space, kind, ...t] = subject.split(".");
  if (root !== "cotal") throw badSubject(`${JSON.stringify(subject)} does not begin with cotal`);
  name("space", space);
  const principal = (i) => ({ owner: name("owner", t[i]), actor: name("actor", t[i + 1]) });
  const exactly = (n) => {
    if (t.length !== n) throw badSubject(`${JSON.stringify(subject)} has not ${n} tokens after ${kind}`);
  };
  switch (kind) {
    case "chat":
    case "live":
      return { kind, space, sender: principal(0), channel: name("channel", t.slice(2).join(".")) };
    case "inst":
      exactly(4);
      return { kind, space, to: principal(0), sender: principal(2) };
    case "svc":
      exactly(3);
      return { kind, space, role: name("role", t[0]), sender: principal(1) };
    case "dlv":
      exactly(3);
      return { kind, space, to: principal(0), uid: name("uid", t[2]) };
  }
  throw badSubject(`${JSON.stringify(subject)} is of no kind`);
}

// surfaces refuses what parses but must not be shown [SUB-4].
export function surfaces(subject) {
  for (const p of [subject.sender, subject.to]) {
    if (p && !ownerIsKnown(p.owner)) throw badSubject(`owner ${JSON.stringify(p.owner)} is not known`);
  }
  return subject;
}

const maxRail = 1024; // [SUB-5]

export function parseReplySubject(subject) {
  const t = rail(subject, 11, "ep", "reply");
  return {
    space: t[1], endpoint: endpointOf(t[4]), instance: name("instance", t[5]), epoch: name("epoch", t[6]),
    caller: { owner: knownOwner(t[7]), actor: name("actor", t[8]), uid: name("uid", t[9]) }, nonce: name("nonce", t[10]),
  };
}

export function parseEventSubject(subject) {
  const t = rail(subject, 7, "epe");
  return {
    space: t[1], endpoint: endpointOf(t[3]), instance: name("instance", t[4]), epoch: name("epoch", t[5]),
    topic: name("channel", t.slice(6).join(".")),
  };
}

function rail(subject, tokens, ...words) {
  const t = subject.split(".");
  const fits = words[0] === "epe" ? t.length >= tokens : t.length === tokens;
  if (bytes(subject) > maxRail || !fits || t[0] !== "cotal" || words.some((w, i) => t[2 + i] !== w)) {
    throw badSubject(`${JSON.stringify(subject)} is no subject of ${words.join(".")}`);
  }
  name("space", t[1]);
  return t;
}

// endpointOf undoes the writing of an endpoint as one token.
const endpointOf = (token) => name("endpoint", token.replaceAll("_", "."));

function knownOwner(owner) {
  if (!ownerIsKnown(name("owner", owner))) throw badSubject(`owner ${JSON.stringify(owner)} is not known`);
  return owner;
}

// --- JSON ---

// sources remembers the text that a decoded object was written as, so that it can be passed on unchanged [MSG-4];
// notIntegers the keys of an object whose number was not written as a plain integer.
const sources = new WeakMap();
const notIntegers = new WeakMap();
export const sourceOf = (value) => sources.get(value);

// decode reads one JSON value as strictly as [JSN-1] wants, which JSON.parse does not.
export function decode(data, maxBytes, maxDepth) {
  if (data.length > maxBytes) throw badJSON(`${data.length} bytes, limit ${maxBytes}`);
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    throw badJSON("not UTF-8");
  }
  let at = 0;
  const fail = (what) => badJSON(`${what} at ${at}`);
  const space = () => {
    while (" \t\n\r".includes(text[at] ?? "x")) at++;
  };
  const token = (pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (!found) throw fail("no value");
    at += found[0].length;
    return JSON.parse(found[0]);
  };
  const string = () => {
    let end = at + 1;
    for (; text[end] !== '"'; end++) {
      if (!(text.charCodeAt(end) >= 0x20)) throw fail("unended string");
      if (text[end] === "\\") end++;
    }
    let value;
    try {
      value = JSON.parse(text.slice(at, end + 1));
    } catch {
      throw fail("bad escape");
    }
    if (!value.isWellFormed()) throw fail("lone surrogate");
    at = end + 1;
    return value;
  };
  const list = (close, item) => {
    at++;
    space();
    if (text[at] === close) return void at++;
    for (;;) {
      space();
      item();
      space();
      if (text[at] === close) return void at++;
      if (text[at] !== ",") throw fail(`no , or ${close}`);
      at++;
    }
  };
  const value = (depth) => {
    space();
    const start = at;
    if (depth > maxDepth && "{[".includes(text[at] ?? "x")) throw fail(`more than ${maxDepth} levels`);
    switch (text[at]) {
      case "{": {
        const object = Object.create(null);
        const loose = new Set();
        list("}", () => {
          if (text[at] !== '"') throw fail("no key");
          const key = string();
          if (Object.hasOwn(object, key)) throw fail(`key ${JSON.stringify(key)} twice`);
          space();
          if (text[at] !== ":") throw fail("no :");
          at++;
          space();
          const from = at;
          object[key] = value(depth + 1);
          if (typeof object[key] === "number" && !/^[0-9]+$/.test(text.slice(from, at))) loose.add(key);
        });
        sources.set(object, text.slice(start, at));
        notIntegers.set(object, loose);
        return object;
      }
      case "[": {
        const array = [];
        list("]", () => array.push(value(depth + 1)));
        return array;
      }
      case '"':
        return string();
      default:
        return token(/true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y);
    }
  };
  const result = value(1);
  space();
  if (at !== text.length) throw fail("something after the value");
  return result;
}

// --- Shapes ---

// A shape says of each known key what its value must be; a key that ends in "?" may be absent. Unknown keys are ignored
// [JSN-2], a known key in another case is refused [JSN-1].
function check(value, shape, what) {
  if (!isObject(value)) throw badJSON(`${what} is no object`);
  const known = new Map(Object.keys(shape).map((k) => [k.replace("?", ""), k])); // the later of "k?" and "k" counts
  const anyCase = new RegExp(`^(${[...known.keys()].join("|")})$`, "iu"); // Unicode's simple folding: also ſ for s
  for (const key of Object.keys(value)) {
    if (!known.has(key) && anyCase.test(key)) throw badJSON(`${what}: key ${JSON.stringify(key)} in another case`);
  }
  for (const [key, entry] of known) {
    if (!Object.hasOwn(value, key)) {
      if (entry.endsWith("?")) continue;
      throw badJSON(`${what} has no ${key}`);
    }
    const fits = shape[entry];
    if (fits === isInteger && notIntegers.get(value)?.has(key)) throw badJSON(`${what}.${key} is not written as an integer`);
    if (fits(value[key], `${what}.${key}`) === false) throw badJSON(`${what}.${key} is outside its rule`);
  }
  return value;
}

const isObject = (v) => typeof v === "object" && v !== null && !Array.isArray(v);
const isText = (v) => typeof v === "string";
const isWord = (v) => isText(v) && v !== "";
export const isInteger = (v) => Number.isInteger(v) && v >= 0 && v <= Number.MAX_SAFE_INTEGER;
const isBoolean = (v) => typeof v === "boolean";
const anything = () => true;
const oneOf = (...words) => (v) => words.includes(v);
const is = (kind) => (v) => isName(kind, v);
const listOf = (fits, max = Infinity) => (v, what) => Array.isArray(v) && v.length <= max && v.every((item, i) => fits(item, `${what}[${i}]`) !== false);
const shaped = (shape) => (v, what) => void check(v, shape, what);
const characters = (min, max) => (v) => isText(v) && [...v].length >= min && [...v].length <= max;
const isID = (v) => isText(v) && bytes(v) <= 256 && !/[\u0000-\u001f\u007f]/.test(v);
const isDisplayName = characters(1, 128);
const isRole = (v) => v === "" || isName("role", v); // an empty one is none
const isPrincipal = (v) => void parsePrincipal(v, badJSON);
const reverseDNS = /^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$/;

// The core kinds share their keys: what one kind needs is known, and may be absent, in the others.
const isDigest = (v) => isText(v) && /^sha256:[0-9a-f]{64}$/.test(v);
const artifact = { name: isDisplayName, mediaType: characters(1, 128), digest: isDigest, size: isInteger };
const others = { "text?": anything, "data?": anything, "name?": anything, "mediaType?": anything, "digest?": anything, "size?": anything };
const parts = {
  text: { ...others, kind: isText, text: isText },
  data: { ...others, kind: isText, data: anything },
  artifact: { ...others, kind: isText, ...artifact },
};

// [MSG-3], [MSG-4]
function isPart(part, what) {
  check(part, { kind: (v) => isText(v) && bytes(v) <= 128 }, what);
  if (Object.hasOwn(parts, part.kind)) check(part, parts[part.kind], what);
  else if (!reverseDNS.test(part.kind)) throw badJSON(`${what} is of the unknown kind ${JSON.stringify(part.kind)}`);
}

const messageShape = {
  id: isID, ts: isInteger, space: is("space"), "from?": shaped({ id: isText, name: isDisplayName, "role?": isRole }),
  "channel?": is("channel"), "to?": isPrincipal, "toService?": is("role"),
  parts: listOf(isPart), "mentions?": listOf((v) => isDisplayName(v) && v === v.toLowerCase(), 128), "replyTo?": isID, "contextId?": isID,
};

// decodeMessage reads a payload of section 5 [MSG-1].
export function decodeMessage(data) {
  const m = decode(data, 256 << 10, 32);
  check(m, messageShape, "message");
  if (["channel", "to", "toService"].filter((k) => Object.hasOwn(m, k)).length !== 1) throw badJSON("message without exactly one address");
  if (!m.from) throw badSender("message without from"); // only when nothing else is wrong with it [MSG-6]
  parsePrincipal(m.from.id);
  return m;
}

// receive checks a delivered message as a whole: its subject, its payload, and that they agree [TRU-1], [TRU-2].
export function receive(subject, data) {
  const s = surfaces(parseSubject(subject));
  if (!s.sender) throw badSender("a pointer is no message");
  const m = decodeMessage(data);
  const agree = m.space === s.space && m.from.id === dot(s.sender) &&
    m.channel === s.channel && m.to === (s.to && dot(s.to)) && m.toService === s.role;
  if (!agree) throw badSender("payload and subject disagree");
  return { subject: s, message: m };
}

export const dot = (p) => `${p.owner}.${p.actor}`;

const orNull = (fits) => (v, what) => v === null || fits(v, what);
const presenceShape = {
  card: shaped({
    id: isPrincipal, name: isDisplayName, kind: oneOf("agent", "endpoint"), "role?": isRole, "description?": isText, "tags?": orNull(listOf(isText)),
    "skills?": orNull(listOf(shaped({ id: isWord, name: isWord, "description?": isText }))), "meta?": orNull(isObject), "protocolVersion?": isText,
  }),
  status: oneOf("idle", "waiting", "working", "offline"), "activity?": isText, "attention?": oneOf("", "open", "dnd", "focus"),
  "channelModes?": orNull((v) => isObject(v) && Object.entries(v).every(([ch, mode]) => isName("channel", ch) && ["quiet", "muted"].includes(mode))),
  "condition?": orNull(shaped({
    code: (v) => isText(v) && /^[a-z0-9_-]{1,64}$/.test(v), "source?": isText, "message?": isText, "since?": isInteger,
  })),
  lifecycleUid: is("uid"), ts: (v) => isInteger(v) && v > 0,
};

// checkPresence checks a record of section 8 that is stored under key [PRE-3].
export function checkPresence(key, record) {
  check(record, presenceShape, "presence");
  if (!ownerIsKnown(parsePrincipal(record.card.id).owner)) throw badJSON("presence of an unknown owner");
  if (record.card.id !== key) throw badSender(`record of ${JSON.stringify(record.card.id)} under ${JSON.stringify(key)}`);
  return record;
}

export function decodePresence(key, data) {
  return checkPresence(key, decode(data, 32 << 10, 32));
}

const errorCodes = [
  "bad-request", "unsupported-version", "op-mismatch", "class-mismatch", "target-mismatch", "sender-mismatch", "contract-mismatch",
  "unauthenticated", "expired", "permission-denied", "not-found", "already-exists", "conflict", "failed-precondition",
  "resource-exhausted", "unavailable", "deadline-exceeded", "cancelled", "unimplemented", "internal",
];

// codeOf is the code a caller decides by [ERR-2].
export const codeOf = (error) => (errorCodes.includes(error.code) ? error.code : "internal");

// decodeReply reads a payload of section 10.2 [REP-3].
export function decodeReply(data) {
  const r = check(decode(data, 1 << 20, 40), {
    v: oneOf(1), id: is("requestID"), ok: isBoolean, "data?": anything,
    "error?": shaped({
      code: (v) => errorCodes.includes(v) || (isText(v) && reverseDNS.test(v)), "message?": isText, "details?": isObject,
      "outcome?": oneOf("executed", "not-executed", "unknown"),
    }),
  }, "reply");
  if (r.ok === Object.hasOwn(r, "error") || (!r.ok && Object.hasOwn(r, "data"))) throw badJSON("reply with the wrong one of data and error");
  return r;
}

// decodeRosterEvent reads an event of section 11.1.
export function decodeRosterEvent(data) {
  const e = check(decode(data, 1 << 20, 40), { kind: isText, sequence: isInteger, "entry?": isObject, "principal?": isPrincipal }, "event");
  if (e.kind === "change" && !isObject(e.entry)) throw badJSON("change without entry");
  if (e.kind === "remove" && !isText(e.principal)) throw badJSON("remove without principal");
  return e;
}

// canonical is the RFC 8785 form, over which digests are taken [EPT-2]: sorted keys, no space, numbers as JSON.stringify.
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (!isObject(value)) return JSON.stringify(value);
  return `{${Object.keys(value).sort().map((k) => `${JSON.stringify(k)}:${canonical(value[k])}`).join(",")}}`;
}
