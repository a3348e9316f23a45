// The scenario: a participant of a space that follows SPEC.md alone, beside participants of the project's own code, which
// the partner moves (see harness.mjs). Usage: node drive.mjs <server> <actor>=<file> …
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { connect as dial, credsAuthenticator, errors, headers } from "@nats-io/transport-node";
import { connect, readCredential, within } from "./client.mjs";
import { canonical, dot } from "./contract.mjs";
import { ask, Box, check, equal, fails, finish, must, patience, textOf } from "./harness.mjs";
import { members } from "./members.mjs";
import { watchRoster } from "./roster.mjs";

const [server, ...given] = process.argv.slice(2);
const files = new Map(given.map((g) => [g.slice(0, g.indexOf("=")), readFileSync(g.slice(g.indexOf("=") + 1))]));

// --- Who takes part ---

const jayTells = new Box();
const jay = await connect(server, files.get("jay"), { name: "Jay", tells: jayTells.put });
const mallory = await connect(server, files.get("mallory"), { name: "Mallory" });
const sam = await connect(server, files.get("sam"), { name: "Sam" });
const me = dot(jay.me);
const credential = async (actor, ttlMs) => readFileSync((await ask({ do: "credential", actor, ttlMs })).file);

// What takes its time begins now and is looked at later: a credential that ends, and a request for messages that nobody sends.
const ending = await credential("brief", 20_000);
const brief = await connect(server, ending, { reconnect: false });
const cutOff = brief.nc.closed().then(() => Date.now());
const arrivals = async (queue, options, who = jay) => {
  const got = [];
  for await (const item of who.pull(queue, options)) got.push(item);
  return got;
};
const standing = arrivals(sam.directQueue(), { batch: 4, expires: 20_000, heartbeat: 6_000 }, sam);
standing.catch(() => {}); // the check that waits for it says so
const bob = await ask({ do: "victim" }); // {principal, uid, inbox} of a participant of the project's own code

// --- The credential and the connection (2) ---

await check("the credential says who it is and what it may", async () => {
  const { space, profile, owner, actor, role, subscribe, publish, commands, expires } = jay.me;
  equal({ space, profile, owner, actor, role, subscribe, publish, commands }, await ask({ do: "request", of: "jay" }), "tags");
  must(expires > Date.now(), "the credential has ended or has no end");
});

await check("a credential of another, an ended one and plain text to elsewhere are not used", async () => {
  await fails("failed-precondition", () => connect(server, files.get("jay"), { principal: "local.bob" }), "another principal");
  await fails("failed-precondition", () => connect(server, files.get("jay"), { space: "elsewhere" }), "another space");
  await fails("failed-precondition", () => connect("nats://192.0.2.1:4222", files.get("jay")), "plain text elsewhere");
});

await check("the inbox is its own", async () => {
  const heard = new Box();
  const inbox = `_INBOX_${jay.me.inbox}.hello`;
  const sub = jay.nc.subscribe(inbox, { callback: (err, msg) => heard.put(err ?? msg.subject) });
  await jay.settled();
  must(!sub.isClosed(), "its own inbox was refused");
  jay.nc.publish(`$JS.API.CONSUMER.INFO.${jay.directQueue().stream}.${jay.directQueue().durable}`, "", { reply: inbox });
  equal(await heard.find(() => true, "answer"), inbox, "subject of the answer");
  sub.unsubscribe();
});

// --- Presence and the roster (8, 11.1) ---

let view, watch;
const views = new Box();
const began = Date.now();
let shown;

await check("presence is stored and Go sees it", async () => {
  await jay.announce({ status: "working", activity: "conformance", attention: "focus" });
  await sam.announce();
  sam.fallSilent();
  const seen = await ask({ do: "roster", principal: me, status: "working" });
  shown = Date.now();
  equal([seen.name, seen.activity, seen.attention, seen.uid, seen.role], ["Jay", "conformance", "focus", jay.me.uid, "reviewer"], "what Go sees");
});

await check("the roster shows the peers, in one page and in many", async () => {
  const { entries } = await jay.roster();
  equal(entries.get(bob.principal)?.presence.card.name, "Bob", "bob's name");
  equal(entries.get(bob.principal).presence.lifecycleUid, bob.uid, "bob's lifecycle");
  equal(entries.get(bob.principal).gone, undefined, "bob is gone");
  const paged = await jay.roster(1);
  equal([...paged.entries.keys()], [...entries.keys()], "principals page by page");
  must(entries.size >= 3, `${entries.size} entries`);
});

await check("the roster feed follows", async () => {
  watch = await watchRoster(jay, (v) => {
    view = v;
    for (const e of v.entries.values()) views.put({ principal: e.principal, status: e.presence.status, activity: e.presence.activity, gone: e.gone, stale: v.stale });
  });
  const { entries, stale } = view;
  must(!stale && entries.has(me), "snapshot without oneself");
  await ask({ do: "status", status: "waiting", activity: "for the feed" });
  await views.find((v) => v.principal === bob.principal && v.status === "waiting" && v.activity === "for the feed" && !v.stale, "bob's change");
});

// --- Channels (6, 9) ---

const heard = new Box();
let backend;

await check("a join hears live copies with their place in the stream", async () => {
  backend = await jay.listen("team.backend", heard.put);
  const receipts = [];
  for (const text of ["one", "two", "three"]) receipts.push(await ask({ do: "post", channel: "team.backend", text }));
  let previous = 0;
  for (const { id, sequence } of receipts) {
    const got = await heard.find((h) => h.message.id === id, id);
    equal([got.sender, got.channel, got.sequence, got.previous], [bob.principal, "team.backend", sequence, previous], "live copy");
    previous = sequence;
  }
});

await check("a message under two subscriptions surfaces once", async () => {
  const wide = await jay.listen("team.>", heard.put);
  const { id } = await ask({ do: "post", channel: "team.backend", text: "once" });
  const { id: last } = await ask({ do: "post", channel: "team.other", text: "the other" });
  await heard.find((h) => h.message.id === last, "the message after it");
  equal(heard.items.filter((h) => h.message.id === id).length, 1, "times heard");
  wide.leave();
});

await check("a repeated id is stored and heard once", async () => {
  const first = await ask({ do: "post", channel: "team.backend", text: "again", id: "the-same-id" });
  const second = await ask({ do: "post", channel: "team.backend", text: "again", id: "the-same-id" });
  equal([first.duplicate, second.duplicate, second.sequence], [false, true, first.sequence], "receipts");
  const { id } = await ask({ do: "post", channel: "team.backend", text: "after it" });
  await heard.find((h) => h.message.id === id, "the message after it");
  equal(heard.items.filter((h) => h.message.id === "the-same-id").length, 1, "times heard");
});

await check("a gap is noticed and history fills it", async () => {
  backend.leave();
  await jay.settled();
  const missed = await ask({ do: "post", channel: "team.backend", text: "missed" });
  backend = await jay.listen("team.backend", heard.put);
  const next = await ask({ do: "post", channel: "team.backend", text: "not missed" });
  const { gap } = await jayTells.find((t) => t.gap?.until === next.sequence, "gap");
  must(gap.after < missed.sequence, `gap after ${gap.after}`);
  const page = await jay.history({ channel: "team.backend", from: gap.after + 1, until: gap.until - 1 });
  equal(page.messages.map((m) => [m.sequence, m.sender, m.message.id]), [[missed.sequence, bob.principal, missed.id]], "what was missed");
  must(!heard.items.some((h) => h.message.id === missed.id), "the missed message was heard");
});

await check("a post is stored and Go receives it", async () => {
  const parts = [{ kind: "text", text: "grüße 🌍" }, { kind: "data", data: { n: [1, null, "x"] } }, { kind: "com.example.vote", choice: "yes" }];
  const receipt = await jay.post("team.backend", { parts, mentions: ["bob"], replyTo: "the-same-id", contextId: "c1" });
  equal([receipt.stream, receipt.duplicate], [`CHAT_${jay.me.space}`, false], "receipt");
  const got = await ask({ do: "heard", id: receipt.id });
  equal([got.kind, got.sender, got.channel, got.sequence], ["channel", me, "team.backend", receipt.sequence], "what the broker vouches for");
  equal([got.message.from, got.message.parts, got.message.mentions, got.message.replyTo, got.message.contextId],
    [jay.from, parts, ["bob"], "the-same-id", "c1"], "what the sender says");
  await heard.find((h) => h.message.id === receipt.id && h.sequence === receipt.sequence, "its own copy");
});

await check("a post repeated with its id is a duplicate", async () => {
  const first = await jay.post("team.js", { id: "sent-twice", parts: [{ kind: "text", text: "twice" }] });
  const second = await jay.post("team.js", { id: "sent-twice", parts: [{ kind: "text", text: "twice" }] });
  equal([first.duplicate, second.duplicate, second.sequence], [false, true, first.sequence], "receipts");
  equal((await ask({ do: "heard", id: "sent-twice" })).times, 1, "times Go heard it");
});

await check("headers that the sender wrote itself do not count", async () => {
  const message = jay.message({ channel: "team.backend" }, "with forged headers");
  const forged = headers();
  forged.set("Nats-Msg-Id", message.id);
  forged.set("Nats-Subject", jay.subject("chat", bob.principal, "secret"));
  for (const key of ["Nats-Sequence", "Nats-Last-Sequence", "nats-sequence"]) forged.append(key, "999999");
  const { seq } = (await jay.ask(jay.subject("chat", me, "team.backend"), JSON.stringify(message), { headers: forged })).json();
  const got = await heard.find((h) => h.message.id === message.id, "the message");
  equal([got.sequence, got.sender, got.channel], [seq, me, "team.backend"], "what the broker vouches for");
  must(got.previous < seq, `previous ${got.previous}`);
  equal((await ask({ do: "heard", id: message.id })).sequence, seq, "sequence as Go sees it");
});

await check("an id that is stored twice is heard once, messages without one each", async () => {
  const wide = await jay.listen("team.>", heard.put);
  const subject = jay.subject("chat", me, "team.js");
  const store = async (message, key) => {
    const h = headers();
    if (key) h.set("Nats-Msg-Id", key);
    return (await jay.ask(subject, JSON.stringify(message), { headers: h })).json().seq;
  };
  const twice = jay.message({ channel: "team.js" }, "stored twice");
  must((await store(twice, "one key")) < (await store(twice, "another key")), "stored once");
  const narrow = await jay.listen("team.js", heard.put);
  const nameless = [await store(jay.message({ channel: "team.js" }, { id: "", parts: [] })), await store(jay.message({ channel: "team.js" }, { id: "", parts: [] }))];
  const { id: last } = await jay.post("team.js", "after them");
  await heard.find((h) => h.message.id === last, "the message after them");
  equal(heard.items.filter((h) => h.message.id === twice.id).length, 1, "times heard");
  equal(heard.items.filter((h) => h.message.id === "").map((h) => h.sequence), nameless, "messages without an id");
  equal((await ask({ do: "heard", id: last })) && (await ask({ do: "heard", id: twice.id })).times, 1, "times Go heard it");
  equal((await ask({ do: "heard", id: "" })).times, 2, "messages without an id that Go heard");
  wide.leave();
  narrow.leave();
});

await check("headers that would end what is stored are refused", async () => {
  for (const [key, value] of [["Nats-Rollup", "sub"], ["Nats-Rollup", "all"], ["Nats-TTL", "1s"]]) {
    const h = headers();
    h.set(key, value);
    const { error } = (await jay.ask(jay.subject("chat", me, "team.js"), JSON.stringify(jay.message({ channel: "team.js" }, key)), { headers: h })).json();
    must(error?.description, `${key}: ${value} was accepted`);
  }
});

// lies are payloads that a receiver must drop, with the reason it must name.
const lies = {
  "another sender": ["sender-mismatch", (m) => ({ ...m, from: { id: bob.principal, name: "Bob" } })],
  "another space": ["sender-mismatch", (m) => ({ ...m, space: "elsewhere" })],
  "another channel": ["sender-mismatch", (m) => ({ ...m, channel: "team.other" })],
  "no address": ["malformed-json", ({ channel, ...m }) => m],
  "a key twice": ["malformed-json", (m) => JSON.stringify(m).replace("{", '{"id":"x",')],
  "an acknowledgement": ["malformed-json", () => ({ stream: `CHAT_${jay.me.space}`, seq: 7 })],
  "an empty payload": ["malformed-json", () => ""],
};

await check("lies on a channel are dropped by both", async () => {
  for (const [what, [reason, bend]] of Object.entries(lies)) {
    const subject = mallory.subject("chat", dot(mallory.me), "team.backend");
    const lie = bend(mallory.message({ channel: "team.backend" }, what));
    const before = jayTells.items.length;
    const stored = (await mallory.ask(subject, typeof lie === "string" ? lie : JSON.stringify(lie))).json();
    must(stored.seq > 0, `${what} was not stored`);
    const { dropped } = await jayTells.find((t) => t.dropped && jayTells.items.indexOf(t) >= before, `drop of ${what}`);
    equal(dropped, { reason, subject: mallory.subject("live", dot(mallory.me), "team.backend") }, what);
    equal((await ask({ do: "dropped", count: 1 })).reasons, [reason], `Go's reason for ${what}`);
  }
  must(!heard.items.some((h) => h.sender === dot(mallory.me)), "a lie was heard");
});

// --- Direct messages (7) ---

// nothing checks that a queue holds nothing, neither waiting nor handed out and not acknowledged.
const nothing = async (queue, what) => {
  equal((await arrivals(queue, { noWait: true, batch: 5 })).map((i) => i.status), [404], what);
  // Whoever took it acknowledges it a moment after it was seen.
  const until = Date.now() + patience;
  let info;
  do info = (await jay.ask(`$JS.API.CONSUMER.INFO.${queue.stream}.${queue.durable}`, "")).json();
  while (info.num_pending + info.num_ack_pending > 0 && Date.now() < until);
  equal([info.num_pending, info.num_ack_pending], [0, 0], `${what}: waiting, unacknowledged`);
};

await check("a direct message reaches Go", async () => {
  const receipt = await jay.direct(bob.principal, "to you alone");
  equal(receipt.stream, `DM_${jay.me.space}`, "stream");
  const got = await ask({ do: "direct-heard", id: receipt.id });
  equal([got.kind, got.sender, got.sequence, textOf(got.message), got.redelivered], ["direct", me, receipt.sequence, "to you alone", false], "what Go got");
});

await check("a direct message that Go gives back comes to it again", async () => {
  const receipt = await jay.direct(bob.principal, { parts: [{ kind: "text", text: "give this back" }], contextId: "nak" });
  const got = await ask({ do: "direct-heard", id: receipt.id, redelivered: true });
  equal([got.sequence, got.times], [receipt.sequence, 2], "redelivery");
});

await check("a direct message from Go waits, is handled and acknowledged", async () => {
  const sent = await ask({ do: "direct", to: me, text: "waiting for you" });
  const [{ delivery: d }] = await arrivals(jay.directQueue(), { batch: 1 });
  equal([d.message.id, d.sender, d.sequence, d.delivered, textOf(d.message)], [sent.id, bob.principal, sent.sequence, 1, "waiting for you"], "delivery");
  await d.confirm();
  await nothing(jay.directQueue(), "after the acknowledgement");
});

await check("a direct message that is given back comes again", async () => {
  const sent = await ask({ do: "direct", to: me, text: "not now" });
  const times = [];
  for await (const { delivery: d } of jay.pull(jay.directQueue(), { batch: 3 })) {
    times.push(Date.now());
    equal([d.message.id, d.sequence, d.delivered], [sent.id, sent.sequence, times.length], "delivery");
    if (times.length === 1) d.nak();
    else if (times.length === 2) d.nak(400);
    else await d.confirm();
  }
  equal(times.length, 3, "deliveries");
  must(times[2] - times[1] >= 350, `the pause was ${times[2] - times[1]} ms`);
  await nothing(jay.directQueue(), "after the acknowledgement");
});

await check("a direct message that is terminated never comes again", async () => {
  await ask({ do: "direct", to: me, text: "no use" });
  const [{ delivery: d }] = await arrivals(jay.directQueue(), { batch: 1 });
  d.working();
  d.term("no use");
  await jay.settled();
  await nothing(jay.directQueue(), "after the termination");
});

await check("lies in the direct queue are ended", async () => {
  const { channel, ...direct } = mallory.message({ to: me }, "a lie");
  const subject = mallory.subject("inst", me, dot(mallory.me));
  const wrong = [{ ...direct, from: { id: bob.principal, name: "Bob" } }, { ...direct, to: bob.principal }, { stream: "x", seq: 1 }];
  const before = jayTells.items.length;
  for (const lie of wrong) await mallory.ask(subject, JSON.stringify(lie));
  equal((await arrivals(jay.directQueue(), { batch: 3 })).length, 0, "deliveries");
  equal(jayTells.items.slice(before).map((t) => t.dropped.reason), ["sender-mismatch", "sender-mismatch", "malformed-json"], "reasons");
  await jay.settled();
  await nothing(jay.directQueue(), "after the lies");
});

await check("the broker says how a request for messages stands", async () => {
  const said = await standing;
  equal(said.at(-1).status, 408, "the end");
  equal(said.at(-1).pending, 4, "what it had left");
  must(said.slice(0, -1).every((s) => s.status === 100) && said.length >= 3, `heartbeats: ${JSON.stringify(said)}`);
  const refused = async (queue, options) => (await arrivals(queue, options)).map((s) => s.status);
  equal(await refused(jay.directQueue(), { expires: 1000, heartbeat: 900 }), [400], "a heartbeat over half of it");
  equal(await refused(jay.directQueue(), { batch: 257 }), [409], "a batch too large");
  equal(await refused(jay.roleQueue(), { batch: 33 }), [409], "a batch of role work too large");
  equal(await refused(jay.directQueue(), { expires: 61_000 }), [409], "a request that stands too long");
});

// --- Role work (7) ---

await check("role work goes to exactly one of a JavaScript and a Go worker", async () => {
  const mine = [];
  const held = await ask({ do: "ask-role", role: "reviewer", text: "job 0" });
  const [{ delivery: first }] = await arrivals(jay.roleQueue(), { batch: 1 });
  equal([first.message.id, first.role, first.sender, first.sequence], [held.id, "reviewer", bob.principal, held.sequence], "the first job");
  mine.push(first.message.id);
  await ask({ do: "work" }); // the Go worker begins, while the first job is held here
  const jobs = [held.id];
  for (let i = 1; i <= 3; i++) jobs.push((await jay.askRole("reviewer", `job ${i}`)).id);
  await ask({ do: "worked", ids: jobs.slice(1) }); // nobody else pulls
  await first.confirm();
  const stop = new AbortController();
  const take = (d) => {
    mine.push(d.message.id);
    d.ack();
  };
  const working = jay.work(jay.roleQueue(), take, { signal: stop.signal });
  for (let i = 4; i < 40; i++) jobs.push((await ask({ do: "ask-role", role: "reviewer", text: `job ${i}` })).id);
  const until = Date.now() + patience;
  let theirs;
  do theirs = (await ask({ do: "worked", ids: [] })).ids;
  while (mine.length + theirs.length < jobs.length && Date.now() < until);
  stop.abort();
  await working;
  equal([...mine, ...theirs].sort(), [...jobs].sort(), "jobs done by either");
  must(mine.length > 0 && theirs.length >= 3, `shares ${mine.length} and ${theirs.length}`);
});

await check("role work that is given back goes to the other", async () => {
  await ask({ do: "rest" }); // the Go worker stops
  const { id } = await ask({ do: "ask-role", role: "reviewer", text: "not for me" });
  const [{ delivery: d }] = await arrivals(jay.roleQueue(), { batch: 1 });
  equal([d.message.id, d.delivered], [id, 1], "the job");
  await ask({ do: "work" });
  d.nak();
  await ask({ do: "worked", ids: [id] });
  await nothing(jay.roleQueue(), "after the other took it");
});

// --- What delivery reads (9, 11) ---

await check("history comes in pages, in stored order", async () => {
  const posted = [];
  for (let i = 0; i < 5; i++) posted.push(await jay.post("team.js", `page ${i}`));
  const read = [];
  let from = posted[0].sequence;
  let pages = 0;
  for (; from; pages++) {
    const page = await jay.history({ channel: "team.js", from, limit: 2 });
    read.push(...page.messages);
    from = page.next;
    if (!from) equal(page.remaining, 0, "remaining at the end");
  }
  equal(read.map((m) => [m.sequence, m.sender, textOf(m.message)]), posted.map((p, i) => [p.sequence, me, `page ${i}`]), "messages");
  must(pages >= 3 && read.every((m) => Math.abs(m.timeMs - Date.now()) < 60_000), `${pages} pages`);
  const last = await jay.history({ channel: "team.js", last: 2 });
  equal(last.messages.map((m) => m.sequence), posted.slice(-2).map((p) => p.sequence), "the last two");
  const backlog = await jay.history({ channel: "team.backend" });
  must(backlog.skipped >= Object.keys(lies).length, `${backlog.skipped} lies skipped`);
  must(backlog.messages.every((m) => m.sender !== dot(mallory.me)), "a lie in history");
});

await check("history outside the read list is refused", async () => {
  await ask({ do: "post", channel: "secret", text: "not for jay" });
  const refused = await fails("permission-denied", () => jay.history({ channel: "secret" }), "secret");
  equal(refused.details.principal, me, "principal");
  must(refused.details.subject && refused.details.missing, `details ${JSON.stringify(refused.details)}`);
  equal(refused.outcome, "not-executed", "outcome");
});

await check("the channel list says what may be read and written", async () => {
  const { defaults, channels } = await jay.channels();
  must(["live", "durable"].includes(defaults.deliveryClass), `defaults ${JSON.stringify(defaults)}`);
  const by = Object.fromEntries(channels.map((c) => [c.channel, c]));
  const rights = (c) => [by[c]?.readable, by[c]?.writable];
  equal([rights("team.backend"), rights("team.js"), rights("team.other")], [[true, true], [true, true], [true, false]], "rights");
  must(by["team.js"].messages >= 6, `${by["team.js"].messages} messages`);
  equal(by.secret, undefined, "a channel that may not be read");
  equal([by["team.js"].replay, by["team.js"].deliveryClass, by["team.js"].revision], [defaults.replay ?? true, defaults.deliveryClass, 0], "settings");
  equal((await jay.channels(1)).channels.map((c) => c.channel), channels.map((c) => c.channel), "channels page by page");
});

await check("a presence record nested too deeply hides nobody", async () => {
  const meta = (levels) => JSON.parse('{"a":'.repeat(levels) + "1" + "}".repeat(levels));
  for (const levels of [31, 37, 1000]) {
    const record = { card: { ...mallory.from, kind: "agent", meta: meta(levels) }, status: "idle", lifecycleUid: mallory.me.uid, ts: Date.now() };
    await mallory.ask(`$KV.cotal_presence_${jay.me.space}.${dot(mallory.me)}`, JSON.stringify(record));
    await ask({ do: "status", status: "working", activity: `after ${levels} levels` });
    await views.find((v) => v.principal === bob.principal && v.activity === `after ${levels} levels` && !v.stale, "bob's change");
    must((await jay.roster()).entries.has(bob.principal), "bob is not in the roster");
  }
});

// --- What waits for a participant (9.1, 9.2, 11.6 to 11.8) ---

await members({ check, must, equal, fails, ask, arrivals, nothing, credential, Box, textOf, server, jay, mallory, bob });

// --- Requests (10) ---

const digest = (value) => `sha256:${createHash("sha256").update(canonical(value)).digest("hex")}`;

await check("describe tells a contract that bears its digests", async () => {
  const contract = await jay.describe("delivery");
  equal([contract.v, contract.endpoint, contract.digest], [1, "delivery", digest(contract.commands)], "contract");
  const names = contract.commands.map((c) => c.name);
  const documented = "roster channels history channel-set enrol join leave memberships pull ack receipt reach trace inbox describe health";
  must(documented.split(" ").every((n) => names.includes(n)), `commands ${names}`);
  for (const [key, schema] of Object.entries(contract.schemas)) equal(digest(schema), key, "digest of a schema");
  for (const c of contract.commands) {
    must(["read", "write"].includes(c.effect) && c.class === "ephemeral" && Array.isArray(c.modes), JSON.stringify(c));
    must(c.inputDigest in contract.schemas && c.outputDigest in contract.schemas, `schemas of ${c.name}`);
  }
  const { inputDigest, outputDigest } = contract.commands.find((c) => c.name === "history");
  const pin = (digests) => ({ change: (r) => ({ ...r, op: { ...r.op, ...digests } }) });
  const page = await jay.call("delivery", "history", { channel: "team.js", last: 1 }, pin({ inputDigest, outputDigest }));
  equal(page.messages.length, 1, "with the digests of the contract");
  const other = pin({ inputDigest: digest({ other: "contract" }) });
  await fails("contract-mismatch", () => jay.call("delivery", "history", { channel: "team.js", last: 1 }, other), "with another digest");
});

await check("health is a live answer", async () => {
  const h = await jay.health("delivery");
  equal([h.endpoint, h.ready], ["delivery", true], "health");
  equal([h.instance, h.epoch], [view.instance, view.epoch], "the instance that the roster names");
  equal((await jay.health("delivery", { rail: "all" })).instance, h.instance, "the answer of all");
});

await check("requests that break the contract are refused by code", async () => {
  const bend = (code, change) => fails(code, () => jay.call("delivery", "history", { channel: "team.js", last: 1 }, { change }), code);
  await bend("unsupported-version", (r) => ({ ...r, v: 2 }));
  await bend("class-mismatch", (r) => ({ ...r, class: "journal" }));
  await bend("op-mismatch", (r) => ({ ...r, op: { ...r.op, command: "roster" } }));
  await bend("sender-mismatch", (r) => ({ ...r, from: { id: bob.principal, name: "Bob" } }));
  await bend("target-mismatch", (r) => ({ ...r, target: { owner: "local", actor: "bob", lifecycleUid: bob.uid } }));
  await bend("bad-request", (r) => ({ ...r, args: { channel: "team.*" } }));
  await bend("bad-request", (r) => ({ ...r, args: { channel: "team.js", last: 1, from: 1 } }));
  await bend("bad-request", (r) => ({ ...r, args: { channel: "team.js", surplus: 1 } }));
  await bend("bad-request", (r) => ({ ...r, args: null }));
  await bend("bad-request", ({ deadlineMs, ...r }) => r);
  await bend("failed-precondition", (r) => ({ ...r, bind: { instanceId: "another", epoch: "1" } }));
  const unanswered = (change, what) => fails("deadline-exceeded", () => jay.call("delivery", "roster", undefined, { change, deadline: 500 }), what);
  await unanswered((r) => ({ ...r, replyExpected: false }), "no reply expected");
  await unanswered((r) => ({ ...r, id: "not.an.id" }), "an id that is none");
});

await check("nobody there is known at once", async () => {
  const at = Date.now();
  const refused = await fails("unavailable", () => jay.call("com.example.nobody", "run", undefined, { deadline: 2 * patience }), "nobody");
  equal(refused.outcome, "not-executed", "outcome");
  must(Date.now() - at < patience, `known after ${Date.now() - at} ms`);
});

// --- What the broker refuses (2.2) ---

const { space } = jay.me;
const mine = `${me}.${jay.me.uid}`;
const nonce = "AAAAAAAAAAAAAAAAAAAAAA";
const theirDurable = `DM_${space}.dm_${bob.principal.replace(".", "-")}-${bob.uid}`;
const consumer = (name, deliver) => JSON.stringify({
  stream_name: `DM_${space}`, config: { name, durable_name: name, ack_policy: "explicit", filter_subject: `cotal.${space}.inst.>`, ...deliver },
});
const inMyInbox = `_INBOX_${jay.me.inbox}.stolen`;

const publishes = {
  "a post as another actor": [`cotal.${space}.chat.${bob.principal}.team.backend`],
  "a post as another owner": [`cotal.${space}.chat.u_aaaaaaaaaaaaaaaaaaaaaaaaaa.jay.team.backend`],
  "a post on a channel it only reads": [`cotal.${space}.chat.${me}.team.other`],
  "a post on an undeclared channel": [`cotal.${space}.chat.${me}.secret`],
  "a live copy": [`cotal.${space}.live.${bob.principal}.team.backend`],
  "a direct message as another": [`cotal.${space}.inst.${me}.${bob.principal}`],
  "role work as another": [`cotal.${space}.svc.reviewer.${bob.principal}`],
  "a mention pointer": [`cotal.${space}.dlv.${bob.principal}.${bob.uid}`],
  "a post in another space": [`cotal.other.chat.${me}.team.backend`],
  "presence of another": [`$KV.cotal_presence_${space}.${bob.principal}`],
  "a pull from another's durable": [`$JS.API.CONSUMER.MSG.NEXT.${theirDurable}`, '{"batch":1}'],
  "information on another's durable": [`$JS.API.CONSUMER.INFO.${theirDurable}`],
  "an acknowledgement of another's message": [`$JS.ACK.${theirDurable}.1.1.1.1.0`, "+TERM"],
  "a consumer": [`$JS.API.CONSUMER.CREATE.DM_${space}`, consumer(undefined, { deliver_subject: inMyInbox })],
  "a named consumer": [`$JS.API.CONSUMER.CREATE.DM_${space}.thief`, consumer("thief")],
  "a filtered consumer": [`$JS.API.CONSUMER.CREATE.DM_${space}.thief.cotal.${space}.inst.${bob.principal}.>`, consumer("thief")],
  "a durable consumer": [`$JS.API.CONSUMER.DURABLE.CREATE.DM_${space}.thief`, consumer("thief")],
  "a change of its own durable": [`$JS.API.CONSUMER.DURABLE.CREATE.DM_${space}.${jay.directQueue().durable}`, consumer(jay.directQueue().durable)],
  "a consumer on the chat": [`$JS.API.CONSUMER.CREATE.CHAT_${space}`, "{}"],
  "a consumer's end": [`$JS.API.CONSUMER.DELETE.${theirDurable}`],
  "a stored message": [`$JS.API.STREAM.MSG.GET.DM_${space}`, '{"seq":1}'],
  "a stored message, directly": [`$JS.API.DIRECT.GET.DM_${space}`, '{"seq":1}'],
  "stream information": [`$JS.API.STREAM.INFO.DM_${space}`, '{"subjects_filter":">"}'],
  "a purge": [`$JS.API.STREAM.PURGE.CHAT_${space}`],
  "a snapshot": [`$JS.API.STREAM.SNAPSHOT.DM_${space}`, JSON.stringify({ deliver_subject: inMyInbox })],
  "a request as another": [`cotal.${space}.ep.one.delivery.roster.${bob.principal}.${bob.uid}.${nonce}`],
  "a request of another lifecycle": [`cotal.${space}.ep.one.delivery.roster.${me}.aaaaaaaaaaaaaaaaaaaaaaaaaa.${nonce}`],
  "an ungranted command": [`cotal.${space}.ep.one.delivery.channel-set.${mine}.${nonce}`],
  "a command of an endpoint it was not granted": [`cotal.${space}.ep.one.com_example_other.run.${mine}.${nonce}`],
  "a command acting on any owner": [`cotal.${space}.ep.one.delivery.history.any.local.${mine}.${nonce}`],
  "enrolling, outside open mode": [`cotal.${space}.ep.one.delivery.enrol.${mine}.${nonce}`],
  "a join of another's": [`cotal.${space}.ep.one.delivery.join.${bob.principal}.${bob.uid}.${nonce}`],
  "an acknowledgement of another lifecycle": [`cotal.${space}.ep.one.delivery.ack.${me}.aaaaaaaaaaaaaaaaaaaaaaaaaa.${nonce}`],
  "a trace": [`cotal.${space}.ep.one.delivery.trace.${mine}.${nonce}`],
  "a look into another's inbox": [`cotal.${space}.ep.one.delivery.inbox.${mine}.${nonce}`],
  "a stored mention pointer": [`$JS.EVENT.DLV_${space}.${bob.principal}.${bob.uid}`],
  "a request to one instance": [`cotal.${space}.ep.inst.delivery.i.health.${mine}.${nonce}`],
  "a reply": [`cotal.${space}.ep.reply.delivery.i.e.${bob.principal}.${bob.uid}.${nonce}`],
  "an event": [`cotal.${space}.epe.delivery.i.e.roster`],
  "another's inbox": [`_INBOX_${bob.inbox}.1`],
};

for (const [what, [subject, payload = "{}"]] of Object.entries(publishes)) {
  await check(`refused: ${what}`, async () => {
    const refused = await fails("permission-denied", () => jay.ask(subject, payload), what);
    equal(refused.details.subject, subject, "the subject refused");
    await jay.nc.flush(); // the connection stands
  });
}

await check("refused: a post on an undeclared channel, by the client's own call", async () => {
  await fails("permission-denied", () => jay.post("secret", "x"), "post");
  await fails("permission-denied", () => jay.call("com.example.other", "run"), "call");
  await fails("permission-denied", () => arrivals({ stream: `DM_${space}`, durable: theirDurable.split(".")[1] }, { batch: 1 }), "pull");
  await fails("permission-denied", () => jay.listen("secret", heard.put), "join");
});

const subscriptions = {
  "another's inbox": `_INBOX_${bob.inbox}.>`,
  "all inboxes": "_INBOX_*.>",
  "the common inbox": "_INBOX.>",
  everything: ">",
  "a channel outside the read list": `cotal.${space}.live.*.*.secret`,
  "all channels": `cotal.${space}.live.>`,
  "the chat as published": `cotal.${space}.chat.>`,
  "direct messages": `cotal.${space}.inst.${me}.>`,
  "role work": `cotal.${space}.svc.reviewer.>`,
  "another's replies": `cotal.${space}.ep.reply.*.*.*.${bob.principal}.${bob.uid}.*`,
  "another's mentions": `cotal.${space}.dlv.${bob.principal}.${bob.uid}`,
  "mentions of all": `cotal.${space}.dlv.>`,
  "another's dead letters": `cotal.${space}.epe.delivery.*.*.receipt.${bob.principal}`,
  "the membership feed": `cotal.${space}.epe.delivery.*.*.membership`,
  "requests to delivery": `cotal.${space}.ep.one.delivery.>`,
  "the presence bucket": `$KV.cotal_presence_${space}.>`,
  "advisories": "$JS.EVENT.>",
  "another space": "cotal.other.live.*.*.team.backend",
};

for (const [what, subject] of Object.entries(subscriptions)) {
  await check(`refused: a subscription to ${what}`, async () => {
    const before = jay.violations.length;
    const sub = jay.nc.subscribe(subject, { callback: () => {} });
    await jay.settled();
    must(sub.isClosed(), "the subscription stands");
    equal(jay.violations.slice(before).map((v) => [v.operation, v.subject]), [["subscription", subject]], "violation");
  });
}

await check("what was refused left nothing behind", async () => {
  const { id } = await jay.post("team.backend", "after the refusals");
  await ask({ do: "heard", id });
  equal(await ask({ do: "unexpected" }), { heard: [], dropped: 0 }, "what Go heard beyond what was meant");
  await nothing(jay.directQueue(), "the direct queue");
  equal((await jay.roster()).entries.get(bob.principal).presence.card.name, "Bob", "bob's presence");
});

// --- The end of a credential ---

// presents tries a credential as it is, without the client's own check of its end.
const presents = (file) => dial({ servers: server, authenticator: credsAuthenticator(file), reconnect: false, inboxPrefix: `_INBOX_${readCredential(file).inbox}` });

async function refusedAtTheDoor(file, what) {
  try {
    await (await presents(file)).close();
  } catch (error) {
    must(error instanceof errors.AuthorizationError || error instanceof errors.UserAuthenticationExpiredError, `${what}: ${error}`);
    return;
  }
  throw new Error(`${what} was let in`);
}

await check("an ended credential is cut off and refused", async () => {
  const at = await within(patience, cutOff);
  must(at !== undefined, "still connected after its end");
  must(at >= brief.me.expires, "cut off before its end");
  await fails("expired", () => connect(server, ending), "the client's own check");
  const wait = brief.me.expires + 1000 - Date.now(); // until then the broker may let it in, to cut it off at once
  if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
  await refusedAtTheDoor(ending, "an ended credential");
});

await check("a revoked credential is cut off and refused", async () => {
  const good = await credential("gone", 600_000);
  await (await presents(good)).close();
  const gone = await connect(server, good, { reconnect: false });
  await ask({ do: "revoke", actor: "gone" });
  must((await within(patience, gone.nc.closed().then(() => true))) === true, "still connected after the revocation");
  await refusedAtTheDoor(good, "a revoked credential");
});

await check("no credential is refused", async () => {
  let let_in;
  try {
    let_in = await dial({ servers: server, reconnect: false });
  } catch (error) {
    must(error instanceof errors.AuthorizationError, `${error}`);
  }
  must(!let_in, "let in without a credential");
});

// --- Going ---

await check("who falls silent is offline after 6 s, who keeps its heartbeat is not", async () => {
  const gone = await views.find((v) => v.principal === dot(sam.me) && v.gone === "silent", "sam's end");
  equal(gone.status, "offline", "sam's status");
  must(Date.now() - began >= 6000, "called offline too early");
  must(!view.stale && !views.items.some((v) => v.principal === me && v.gone), "jay was called offline");
  const { entries } = await jay.roster();
  const mine = entries.get(me);
  equal([mine.gone, mine.presence.status], [undefined, "working"], "jay in the roster");
  must(mine.seenMs > shown, "jay's heartbeat is not heard");
  await ask({ do: "roster", principal: dot(sam.me), status: "offline", gone: "silent" });
});

await check("who leaves is offline at once", async () => {
  watch.stop();
  await jay.leave();
  await ask({ do: "roster", principal: me, status: "offline", gone: "left" });
  must(jay.nc.isClosed(), "still connected");
});

await Promise.all([mallory.close(), sam.close()]);
finish();
