// A small participant of a space: the contract of SPEC.md over the official JavaScript NATS client and nothing else. The
// numbers in the comments are its sections, the IDs in brackets its requirements.
import { createHmac, randomBytes } from "node:crypto";
import { connect as dial, credsAuthenticator, errors, headers, nanos } from "@nats-io/transport-node";
import {
  checkPresence, codeOf, decodeReply, dot, isName, isPattern, name, ownerIsKnown, parsePrincipal, parseReplySubject, receive, Refused,
} from "./contract.mjs";

// Failure is a call that did not come to a good end; decide by code and outcome (12).
export class Failure extends Error {
  constructor(code, message, { outcome = "unknown", details } = {}) {
    super(`${code}: ${message}`);
    Object.assign(this, { code, outcome, details });
  }
}

const denied = (error) => new Failure("permission-denied", error.message, { outcome: "not-executed", details: { subject: error.subject } });

// readCredential reads a credentials file (2.1): who it is for, and until when.
export function readCredential(file) {
  const between = (what, dashes) => {
    const found = file.toString().match(new RegExp(`-----BEGIN ${what}-----\\s*(\\S+)\\s*${dashes}END ${what}-----`));
    if (!found) throw new Failure("bad-request", `no ${what} in the credentials file`);
    return found[1];
  };
  between("USER NKEY SEED", "-{5,6}"); // the NATS client reads it again, to sign with
  const claims = JSON.parse(Buffer.from(between("NATS USER JWT", "-{5,6}").split(".")[1], "base64url"));
  const tags = new Map();
  for (const tag of claims.nats?.tags ?? []) {
    const colon = tag.indexOf(":"); // values may hold further ones [CON-1]
    const [key, value] = [tag.slice(0, colon), tag.slice(colon + 1)];
    tags.set(key, [...(tags.get(key) ?? []), value]);
  }
  const all = (key) => tags.get(key) ?? [];
  const once = (key) => {
    if (all(key).length !== 1) throw new Failure("bad-request", `tag ${key} is there ${all(key).length} times`);
    return all(key)[0];
  };
  return {
    space: name("space", once("space")), profile: once("profile"), owner: name("owner", once("owner")), actor: name("actor", once("actor")),
    uid: name("uid", once("uid")), inbox: once("inbox"), role: all("role")[0], subscribe: all("sub"), publish: all("pub"), commands: all("cmd"),
    key: claims.sub, expires: claims.exp * 1000,
  };
}

// isLoopback says whether a host of a URL is this machine by its name alone.
export const isLoopback = (host) => /^(127\.[\d.]+|localhost|\[::1\])$/.test(host);

// checkServer refuses plain text to another machine [CON-6].
function checkServer(server) {
  const url = new URL(server);
  if (url.protocol !== "tls:" && !isLoopback(url.hostname)) {
    throw new Failure("failed-precondition", `${url.hostname} is not loopback and this is not TLS`, { outcome: "not-executed" });
  }
}

// connect starts a participant with the credentials file's content (2). Options: name, the display name; space and
// principal, who it must be; tells, called with what happens outside of calls: a dropped message, a gap.
export async function connect(server, file, options = {}) {
  return open(server, readCredential(file), credsAuthenticator(file), options);
}

// open does the same for who is known already: me as readCredential returns it; authenticate makes the answer to the broker's nonce.
export async function open(server, me, authenticate, options = {}) {
  const other = (what, want, got) => {
    if (want !== undefined && want !== got) throw new Failure("failed-precondition", `the credential is for ${what} ${got}, not ${want}`);
  };
  other("space", options.space, me.space); // [CON-2]
  other("principal", options.principal, dot(me));
  checkServer(server);
  const nc = await dial({
    servers: server,
    inboxPrefix: `_INBOX_${me.inbox}`, // [CON-3]
    name: `${me.space}/${dot(me)}/${me.uid}`, // [CON-5]
    maxReconnectAttempts: options.reconnect === false ? 0 : -1,
    reconnect: options.reconnect !== false,
    ignoreAuthErrorAbort: true,
    authenticator: (nonce) => {
      if (Date.now() >= me.expires) throw new Failure("expired", "the credential has ended", { outcome: "not-executed" }); // [CON-4]
      return authenticate(nonce);
    },
  });
  return new Participant(nc, me, options);
}

// answerWithin is how long the broker or a service may take to answer, unless it is said otherwise.
const answerWithin = 30_000;

export class Participant {
  constructor(nc, me, { name: display = me.actor, tells = () => {} }) {
    Object.assign(this, { nc, me, display, tells });
    this.last = new Map(); // subject to the last sequence heard on it [LIV-3]
    this.seen = new Set(); // sender and id of what was surfaced [MSG-5]
    this.queued = new Map(); // the same of a queue, with the sequence it was handed out under
    this.open = new Map(); // nonce to the request that waits for its reply
    this.violations = [];
    this.secret = randomBytes(32); // of the keys by which the broker knows a repetition
    this.watching = this.#watchViolations();
  }

  // subject is one of this space. What callers pass in has been checked against its grammar.
  subject(...tokens) {
    return ["cotal", this.me.space, ...tokens].join(".");
  }

  get from() {
    return { id: dot(this.me), name: this.display, ...(this.me.role && { role: this.me.role }) };
  }

  // --- What the broker refuses [CON-7] ---

  async #watchViolations() {
    for await (const s of this.nc.status()) {
      if (s.type !== "error" || !(s.error instanceof errors.PermissionViolationError)) continue;
      this.violations.push(s.error);
      for (const request of this.open.values()) {
        if (request.subject === s.error.subject) request.fail(denied(s.error));
      }
    }
  }

  // settled returns once the broker has seen all that was sent, and all that it refused of it is known.
  async settled() {
    await this.nc.flush();
    await new Promise(setImmediate);
  }

  // ask publishes and returns the broker's answer, which comes to the inbox.
  async ask(subject, payload, { headers: h, timeout = answerWithin } = {}) {
    try {
      return await this.nc.request(subject, payload, { timeout, headers: h });
    } catch (error) {
      const cause = error.cause ?? error;
      if (cause instanceof errors.PermissionViolationError) throw denied(cause);
      if (cause instanceof errors.NoRespondersError) throw new Failure("unavailable", `nothing stores ${subject}`, { outcome: "not-executed" });
      if (cause instanceof errors.TimeoutError) throw new Failure("deadline-exceeded", `no answer for ${subject}`);
      throw error;
    }
  }

  // --- Sending (5, 6.1) ---

  // message is a payload of section 5; draft may name id, parts and the optional fields.
  message(address, draft) {
    const { id = randomBytes(16).toString("hex"), ...rest } = typeof draft === "string" ? { parts: [{ kind: "text", text: draft }] } : draft;
    return { id, ts: Date.now(), space: this.me.space, from: this.from, ...address, ...rest }; // [MSG-2]
  }

  // publish sends a payload and returns where the broker stored it: {stream, seq, duplicate} [SND-1].
  async publish(subject, message) {
    const payload = JSON.stringify(message);
    if (Buffer.byteLength(payload) > 256 << 10) throw new Failure("bad-request", "message over 256 KiB"); // [LIM-1]
    const h = headers();
    h.set("Nats-Msg-Id", createHmac("sha256", this.secret).update(`${subject} ${message.id}`).digest("base64url")); // [SND-1]
    const answer = (await this.ask(subject, payload, { headers: h })).json();
    if (answer.error) throw new Failure("resource-exhausted", answer.error.description, { outcome: "not-executed" });
    if (!answer.stream || !answer.seq) throw new Failure("internal", "an answer without stream and sequence");
    return { id: message.id, stream: answer.stream, sequence: answer.seq, duplicate: answer.duplicate === true }; // [SND-2]
  }

  post(channel, draft) {
    return this.publish(this.subject("chat", dot(this.me), name("channel", channel)), this.message({ channel }, draft));
  }

  direct(to, draft) {
    const { owner, actor } = parsePrincipal(to);
    if (!ownerIsKnown(owner)) throw new Refused("malformed-subject", `owner ${owner} is not known`); // [SUB-2]
    return this.publish(this.subject("inst", owner, actor, dot(this.me)), this.message({ to }, draft));
  }

  askRole(role, draft) {
    return this.publish(this.subject("svc", name("role", role), dot(this.me)), this.message({ toService: role }, draft));
  }

  // --- Hearing channels (6.2) ---

  // listen calls hear({message, sender, channel, sequence, previous}) for each message that is posted on the channels of
  // pattern from now on, and returns when the broker has accepted the subscription [LIV-1].
  async listen(pattern, hear) {
    return this.copies(pattern, (copy) => {
      const { subject, sequence, previous, message } = copy;
      const last = this.last.get(subject);
      if (last !== undefined && sequence <= last) return; // [LIV-4]
      if (last !== undefined && previous > last) this.tells({ gap: { subject, after: last, until: sequence } }); // [LIV-3]
      this.last.set(subject, sequence);
      if (!this.repeats(message)) hear(copy);
    });
  }

  // copies calls hear with every live copy that is one, repeated or not.
  async copies(pattern, hear) {
    if (!isPattern(pattern)) throw new Refused("malformed-subject", `${JSON.stringify(pattern)} is no pattern`);
    const sub = await this.subscribe(this.subject("live", "*", "*", pattern), (msg) => {
      try {
        hear(liveCopy(msg));
      } catch (error) {
        this.drop(error, msg.subject);
      }
    });
    return { leave: () => sub.unsubscribe() };
  }

  // subscribe returns when the broker has accepted it.
  async subscribe(subject, hear) {
    const sub = this.nc.subscribe(subject, { callback: (err, msg) => !err && hear(msg) });
    await this.settled();
    const refused = sub.isClosed() && (await sub.closed);
    if (refused) throw denied(refused);
    return sub;
  }

  // repeats says whether the message was surfaced before [MSG-5].
  repeats(message) {
    if (message.id === "") return false;
    const key = `${message.from.id} ${message.id}`;
    if (this.seen.has(key)) return true;
    this.seen.add(key);
    if (this.seen.size > 10_000) this.seen.delete(this.seen.values().next().value);
    return false;
  }

  drop(error, subject) {
    if (!(error instanceof Refused)) throw error;
    this.tells({ dropped: { reason: error.reason, subject } }); // [MSG-6]
  }

  // --- Direct and role messages (7) ---

  directQueue() {
    return { stream: `DM_${this.me.space}`, durable: `dm_${this.me.owner}-${this.me.actor}-${this.me.uid}` };
  }

  roleQueue() {
    return { stream: `TASK_${this.me.space}`, durable: `svc_${this.me.role}` };
  }

  // pull makes one request for messages of a queue and yields what comes: {delivery} for a message, {status, pending} for
  // what the broker says about the request. It ends with the request; the signal withdraws that.
  async *pull({ stream, durable }, { batch = 50, expires = 30_000, heartbeat = 15_000, noWait = false, signal } = {}) {
    const inbox = `_INBOX_${this.me.inbox}.${randomBytes(16).toString("hex")}`;
    const sub = this.nc.subscribe(inbox);
    const request = noWait ? { batch, no_wait: true } : { batch, expires: nanos(expires), idle_heartbeat: nanos(heartbeat) };
    const subject = `$JS.API.CONSUMER.MSG.NEXT.${stream}.${durable}`;
    const before = this.violations.length;
    const withdraw = () => sub.drain().catch(() => {}); // what is under way still comes
    this.nc.publish(subject, JSON.stringify(request), { reply: inbox });
    signal?.addEventListener("abort", withdraw, { once: true });
    try {
      await this.settled();
      const violation = this.violations.slice(before).find((v) => v.subject === subject);
      if (violation) throw denied(violation);
      const arrivals = sub[Symbol.asyncIterator]();
      for (let left = batch; left > 0; ) {
        const next = await within(noWait ? answerWithin : 2 * heartbeat, arrivals.next());
        if (next === undefined || next.done) return; // silence: the request is lost
        const msg = next.value;
        if (msg.subject === inbox) {
          const status = msg.headers?.code;
          yield { status, text: msg.headers?.description, pending: Number(msg.headers?.get("Nats-Pending-Messages")) };
          if (status !== 100) return;
          continue;
        }
        left--;
        const delivery = this.#queued(msg);
        if (delivery) yield { delivery };
      }
    } finally {
      signal?.removeEventListener("abort", withdraw);
      sub.unsubscribe();
    }
  }

  // work pulls until the signal aborts and hands what comes to handle(delivery), which settles it.
  async work(queue, handle, { batch = 1, signal } = {}) {
    while (!signal?.aborted) {
      for await (const { delivery } of this.pull(queue, { batch, signal })) {
        if (delivery) await handle(delivery);
      }
    }
  }

  // #queued checks a message of a queue and ends the redelivery of one that is none [DUR-3].
  #queued(msg) {
    const numbers = msg.reply.split(".").slice(-5).map(Number); // [DUR-4]
    const settle = (payload) => this.nc.publish(msg.reply, payload);
    try {
      const { subject, message } = receive(msg.subject, msg.data);
      if (subject.kind !== "inst" && subject.kind !== "svc") throw new Refused("malformed-subject", "neither direct nor role message");
      if (subject.kind === "inst" && dot(subject.to) !== dot(this.me)) throw new Refused("sender-mismatch", "addressed to another"); // [MSG-7]
      const requeued = msg.headers?.has("Cotal-Requeued") === true;
      if (this.#handled(message, numbers[1]) && !requeued) return void settle("+ACK"); // sent twice [MSG-5], [DUR-7]
      return {
        message, sender: dot(subject.sender), role: subject.role, delivered: numbers[0], sequence: numbers[1], requeued,
        ack: () => settle("+ACK"),
        confirm: async () => void (await this.nc.request(msg.reply, "+ACK", { timeout: answerWithin })),
        nak: (delay) => settle(delay ? `-NAK ${JSON.stringify({ delay: nanos(delay) })}` : "-NAK"),
        term: (reason) => settle(reason ? `+TERM ${reason}` : "+TERM"),
        working: () => settle("+WPI"),
      };
    } catch (error) {
      settle("+TERM");
      this.drop(error, msg.subject);
    }
  }

  // #handled says whether the message was handed out under another sequence. The same one comes again until it is settled.
  #handled(message, sequence) {
    const key = `${message.from.id} ${message.id}`;
    const first = this.queued.get(key);
    if (message.id !== "" && first === undefined) this.queued.set(key, sequence);
    if (this.queued.size > 10_000) this.queued.delete(this.queued.keys().next().value);
    return first !== undefined && first !== sequence;
  }

  // --- Presence (8) ---

  // announce shows the participant and keeps showing it [PRE-1]; call it again to change status or activity.
  async announce(state = {}) {
    clearInterval(this.beat);
    this.state = { status: "idle", ...this.state, ...state };
    const answer = (await this.ask(this.#presenceKey(), this.#record())).json();
    if (answer.error || !answer.seq) throw new Failure("internal", `presence not stored: ${JSON.stringify(answer)}`);
    this.beat = setInterval(() => this.nc.publish(this.#presenceKey(), this.#record()), 2000);
  }

  // fallSilent stops the heartbeat without a word, as a crash would.
  fallSilent() {
    clearInterval(this.beat);
  }

  // leave says offline [PRE-2] and disconnects.
  async leave() {
    clearInterval(this.beat);
    this.state = { ...this.state, status: "offline" };
    await this.ask(this.#presenceKey(), this.#record());
    await this.nc.drain();
  }

  #presenceKey() {
    return `$KV.cotal_presence_${this.me.space}.${dot(this.me)}`;
  }

  #record() {
    const card = { ...this.from, kind: "agent", protocolVersion: "0.5" };
    return JSON.stringify({ card, ...this.state, lifecycleUid: this.me.uid, ts: Date.now() });
  }

  // --- Requests (10) ---

  // call asks any one instance of an endpoint to run a command and returns its data. Options: deadline in milliseconds;
  // rail, "all" to ask every instance and take the first answer; change, which may alter the request before it is sent.
  async call(endpoint, command, args, { deadline = answerWithin, rail = "one", change = (r) => r } = {}) {
    if (!isName("endpoint", endpoint) || !isName("command", command)) throw new Failure("bad-request", `no command ${endpoint} ${command}`);
    this.replies ??= this.#hearReplies();
    await this.replies;
    const nonce = randomBytes(16).toString("base64url"); // [REQ-1]
    const token = endpoint.replaceAll(".", "_");
    const caller = `${dot(this.me)}.${this.me.uid}`;
    const subject = this.subject("ep", rail, token, command, caller, nonce);
    const request = change({
      v: 1, id: nonce, class: "ephemeral", replyExpected: true, op: { endpoint, command }, ...(args && { args }),
      from: { id: dot(this.me), name: this.display }, deadlineMs: deadline,
    });
    const { promise, resolve, reject } = Promise.withResolvers?.() ?? withResolvers();
    this.open.set(nonce, { id: request.id, endpoint, subject, done: resolve, fail: reject });
    const timer = setTimeout(() => reject(new Failure("deadline-exceeded", `no reply from ${endpoint}`)), deadline); // [REP-4]
    // The transport's reply subject is where the broker says that nobody is there (10.3).
    this.nc.publish(subject, JSON.stringify(request), { reply: this.subject("ep", "reply", token, "_", "0", caller, nonce) });
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
      this.open.delete(nonce);
    }
  }

  async #hearReplies() {
    this.nc.subscribe(this.subject("ep", "reply", "*", "*", "*", dot(this.me), this.me.uid, "*"), {
      callback: (err, msg) => !err && this.#reply(msg),
    });
    await this.settled();
  }

  // #reply drops what answers no open request [REP-2].
  #reply(msg) {
    let rail, reply;
    try {
      rail = parseReplySubject(msg.subject);
      const request = this.open.get(rail.nonce);
      if (!request || request.endpoint !== rail.endpoint) return;
      if (msg.data.length === 0 && msg.headers?.code === 503) {
        return request.fail(new Failure("unavailable", `nobody serves ${rail.endpoint}`, { outcome: "not-executed" })); // [REP-4]
      }
      reply = decodeReply(msg.data);
      if (reply.id !== request.id || rail.instance === "_") return; // [REP-5]
      if (reply.ok) request.done(reply.data);
      else request.fail(new Failure(codeOf(reply.error), reply.error.message, reply.error));
    } catch (error) {
      this.drop(error, msg.subject);
    }
  }

  describe = (endpoint) => this.call(endpoint, "describe");
  health = (endpoint, options) => this.call(endpoint, "health", undefined, options);

  // --- What delivery reads for a participant (11) ---

  history = (args) => this.call("delivery", "history", args);
  delivery = (command, args) => this.call("delivery", command, args);

  // channels reads all pages of the list.
  async channels(limit) {
    const channels = [];
    for (let after; ; ) {
      const page = await this.call("delivery", "channels", { ...(limit && { limit }), ...(after && { after }) });
      channels.push(...page.channels);
      if (!page.next) return { defaults: page.defaults, channels };
      after = page.next;
    }
  }

  // roster reads all pages: who is there, by principal, as of the first page's sequence or later.
  async roster(limit) {
    const entries = new Map();
    let first;
    for (let after; ; ) {
      const page = await this.call("delivery", "roster", { ...(limit && { limit }), ...(after && { after }) });
      first ??= page;
      if (page.instance !== first.instance || page.epoch !== first.epoch) return this.roster(limit);
      for (const e of page.entries) {
        checkPresence(e.principal, e.presence); // [PRE-3]
        entries.set(e.principal, e);
      }
      if (!page.next) return { ...first, entries };
      after = page.next;
    }
  }

  async close() {
    clearInterval(this.beat);
    await this.nc.close();
  }
}

// liveCopy reads a message of the live rail (6.2).
function liveCopy(msg) {
  const { subject, message } = receive(msg.subject, msg.data);
  if (subject.kind !== "live") throw new Refused("malformed-subject", "not on the live rail");
  const header = (key) => Number(msg.headers?.values(key).at(-1)); // the last of several is the broker's [LIV-2]
  const [sequence, previous] = [header("Nats-Sequence"), header("Nats-Last-Sequence")];
  if (!Number.isInteger(sequence) || !Number.isInteger(previous)) throw new Refused("malformed-subject", "no copy of a stored message");
  return { subject: msg.subject, message, sender: dot(subject.sender), channel: subject.channel, sequence, previous };
}

// within returns what comes of a promise, or undefined after so many milliseconds.
export function within(ms, promise) {
  let timer;
  const late = new Promise((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

function withResolvers() {
  const d = {};
  d.promise = new Promise((resolve, reject) => Object.assign(d, { resolve, reject }));
  return d;
}
