// The part of the scenario that is about what waits for a participant: memberships, mentions, receipts and dead letters.
import { connect } from "./client.mjs";
import { dot } from "./contract.mjs";
import { followMentions, join, pull } from "./member.mjs";

// plain makes what was decoded, which has no prototype, comparable.
const plain = (value) => value && JSON.parse(JSON.stringify(value));

export async function members({ check, must, equal, fails, ask, arrivals, nothing, credential, Box, textOf, server, jay, mallory, bob }) {
  const me = dot(jay.me);
  const channel = "team.member";
  const post = (text, more) => ask({ do: "post", channel, text, ...more });
  const sequences = (messages) => messages.map((m) => m.sequence);
  const heard = new Box();
  const told = new Box();
  const become = () => join(jay, channel, heard.put, { tells: told.put, limit: 2 });
  const ack = (generation, floor, handled) => jay.delivery("ack", { pattern: channel, generation, floor, ...(handled && { handled }) });
  const before = await post("before the join");
  let member;

  // --- Memberships (9.1, 11.6, 11.7) ---

  await check("a member is given what was posted after its join", async () => {
    member = await become();
    const { pattern, class: kind, durable, resumed, generation, joined, floor, frontier } = member.reply;
    equal([pattern, kind, durable, resumed ?? false, floor], [channel, "durable", true, false, joined], "join");
    must(generation > 0 && joined >= before.sequence && frontier >= joined, `join ${JSON.stringify(member.reply)}`);
    equal(told.items.slice(0, 2), [{ backstop: false }, { backstop: true }], "what the member said of its backstop");
    const sent = [await post("one"), await post("two")];
    for (const { sequence } of sent) {
      const got = await heard.find((h) => h.sequence === sequence, `message ${sequence}`);
      equal([got.sender, got.channel], [bob.principal, channel], "message");
    }
    equal(sequences(heard.items), sequences(sent), "messages of its own");
  });

  await check("a position is kept, and a second join resumes it", async () => {
    const last = heard.items.at(-1).sequence;
    await member.catchUp(); // a live copy does not say that nothing else is before it
    equal((await member.sync()).floor >= last, true, "the floor is beyond what was handled");
    const again = await jay.delivery("join", { pattern: channel });
    equal([again.resumed, again.generation, again.joined], [true, member.generation, member.reply.joined], "resumed");
    must(again.floor >= last && !again.handled, `position ${JSON.stringify(again)}`);
  });

  await check("who was away is given what it missed, page by page, and no more than that", async () => {
    await member.stop();
    const sent = [];
    for (let i = 0; i < 5; i++) sent.push(await post(`missed ${i}`));
    const [, second, , fourth] = sent;
    const pages = [];
    for (let after = 0; after !== undefined; after = pages.at(-1).next) pages.push(await pull(jay, { pattern: channel, after, limit: 2 }));
    equal(pages.flatMap((p) => sequences(p.messages)), sequences(sent), "messages of the pages");
    must(pages.length >= 3 && pages.every((p) => p.messages.length <= 2 && p.generation === member.generation), `${pages.length} pages`);
    must(pages[0].through >= second.sequence && pages[0].next === pages[0].through && pages[0].remaining > 0, `page ${JSON.stringify(pages[0])}`);
    must(pages.at(-1).through >= sent[4].sequence, "the last page ends before the last message");
    equal(pages[0].messages.map((m) => [m.sender, m.channel, textOf(m.message)])[0], [bob.principal, channel, "missed 0"], "first message");
    equal(sequences((await pull(jay, { pattern: channel })).messages), sequences(sent), "a pull moved the position");
    // Another process of this lifecycle handled the second and the fourth.
    const { floor } = await jay.delivery("join", { pattern: channel });
    const range = ({ sequence }) => ({ from: sequence, to: sequence });
    equal((await ack(member.generation, floor, [range(second), range(fourth)])).floor, floor, "floor");
    equal(plain((await jay.delivery("join", { pattern: channel })).handled), [range(second), range(fourth)], "handled ranges");
    const shown = heard.items.length;
    member = await become();
    equal([member.reply.resumed, member.generation > 0], [true, true], "resumed");
    await member.work;
    equal(sequences(heard.items.slice(shown)), [sent[0], sent[2], sent[4]].map((s) => s.sequence), "what was missed");
    must((await member.sync()).floor >= sent[4].sequence, "floor after it");
    equal((await pull(jay, { pattern: channel })).messages, [], "messages after it");
  });

  await check("reports of a position add up in any order", async () => {
    const sent = [await post("first"), await post("second"), await post("third")];
    for (const { id } of sent) await heard.find((h) => h.message.id === id, id);
    const { floor } = await jay.delivery("join", { pattern: channel });
    const each = (s) => ({ from: s.sequence, to: s.sequence });
    await ack(member.generation, floor, [each(sent[2])]);
    await ack(member.generation, floor, [each(sent[0])]);
    equal(sequences((await pull(jay, { pattern: channel })).messages), [sent[1].sequence], "unhandled");
    const after = await ack(member.generation, sent[1].sequence);
    must(after.floor >= sent[2].sequence, `floor ${after.floor}, the third was handled before`);
    equal((await ack(member.generation, 1)).floor, after.floor, "a position moved back");
  });

  await check("positions that cannot be are refused", async () => {
    const { generation } = member;
    const end = (await jay.delivery("join", { pattern: channel })).frontier;
    await fails("failed-precondition", () => ack(generation, end + 1000), "a floor beyond the end");
    await fails("failed-precondition", () => ack(generation, end, [{ from: end + 1000, to: end + 1000 }]), "a range beyond the end");
    await fails("bad-request", () => ack(generation, end, [{ from: end, to: end }]), "a range at the floor");
    await fails("bad-request", () => ack(generation, 1, [{ from: 9, to: 9 }, { from: 4, to: 4 }]), "ranges in disorder");
    await fails("bad-request", () => ack(generation, 1, Array.from({ length: 257 }, (_, i) => ({ from: 3 + 2 * i, to: 3 + 2 * i }))), "257 ranges");
    await fails("conflict", () => ack(generation + 1, end), "another generation");
    await fails("conflict", () => ack(undefined, end), "no generation");
    await fails("conflict", () => jay.delivery("leave", { pattern: channel, generation: generation + 1 }), "leaving another generation");
  });

  await check("a membership of another is none of its own", async () => {
    await ask({ do: "join", channel: "team.theirs" });
    await fails("not-found", () => pull(jay, { pattern: "team.theirs" }), "pull");
    await fails("not-found", () => jay.delivery("ack", { pattern: "team.theirs", generation: 1, floor: 1 }), "ack");
    await fails("not-found", () => jay.delivery("leave", { pattern: "team.theirs" }), "leave");
    await fails("not-found", () => pull(mallory, { pattern: channel }), "pull by another");
    equal((await jay.delivery("memberships", { channel: "team.theirs" })).members.map((m) => [m.principal, m.durable[0].pattern]),
      [["local.mo", "team.theirs"]], "the member is there");
  });

  await check("a join that the read list does not cover is refused", async () => {
    for (const pattern of ["secret", ">", "*.member"]) {
      const refused = await fails("permission-denied", () => jay.delivery("join", { pattern }), pattern);
      equal([refused.details.principal, refused.outcome], [me, "not-executed"], pattern);
      must(refused.details.subject && refused.details.missing, `details ${JSON.stringify(refused.details)}`);
    }
    await fails("permission-denied", () => join(jay, "secret", heard.put), "the client's own join");
    await fails("bad-request", () => jay.delivery("join", { pattern: "team..x" }), "no pattern");
  });

  await check("memberships show one's own and what the read list covers", async () => {
    await ask({ do: "join", channel: "secret" });
    const { members } = await jay.delivery("memberships");
    const own = members.find((m) => m.principal === me);
    equal([own.uid, own.durable.map((d) => [d.pattern, d.generation, d.joined])], [jay.me.uid, [[channel, member.generation, member.reply.joined]]], "own");
    must(!JSON.stringify(members).includes("secret"), `a membership of a channel that may not be read: ${JSON.stringify(members)}`);
    must(members.some((m) => m.principal === "local.mo"), "the member of team.theirs is not listed");
  });

  await check("a gap among live copies is filled before what comes after it", async () => {
    member.live.leave();
    await jay.settled();
    const missed = await post("missed in a gap");
    member.live = await jay.copies(channel, (copy) => member.hear(copy));
    const next = await post("after the gap");
    await heard.find((h) => h.message.id === next.id, "the message after the gap");
    equal(sequences(heard.items.slice(-2)), [missed.sequence, next.sequence], "order");
    await member.sync();
  });

  await check("what was cleared is told as lost", async () => {
    await member.catchUp();
    await member.stop();
    const lost = [await post("to be lost"), await post("to be lost too")];
    equal((await ask({ do: "clear", channel })).removed >= 2, true, "cleared");
    const left = await post("posted after it");
    const page = await pull(jay, { pattern: channel });
    equal(sequences(page.messages), [left.sequence], "messages");
    const [loss] = page.losses;
    equal([page.losses.length, loss.reason, loss.channel, loss.count], [1, "cleared", channel, 2], "loss");
    must(loss.from <= lost[0].sequence && loss.to >= lost[1].sequence && loss.to < left.sequence, `range ${JSON.stringify(loss)}`);
    equal((await pull(jay, { pattern: channel })).losses, page.losses, "the loss, as long as the position is before it");
    member = await become();
    equal(told.items.filter((t) => t.loss).map((t) => t.loss.count), [2], "losses told");
    await member.sync();
    equal((await pull(jay, { pattern: channel })).losses, undefined, "losses behind the position");
  });

  await check("who leaves is still given what is inside, and nothing that came later", async () => {
    await member.stop();
    const inside = [await post("inside"), await post("inside too")];
    const { pattern, left } = await member.leave();
    equal([pattern, left >= inside[1].sequence], [channel, true], "leave");
    await post("outside");
    await fails("not-found", () => jay.delivery("leave", { pattern: channel }), "leaving again");
    const page = await pull(jay, { pattern: channel });
    equal([sequences(page.messages), page.ended, page.through], [sequences(inside), true, left], "what is inside");
    equal(plain(await ack(member.generation, inside[0].sequence)), { floor: inside[0].sequence }, "half of it");
    // A new join while something waits.
    const again = await jay.delivery("join", { pattern: channel });
    must(!again.resumed && again.generation > member.generation && again.floor === inside[0].sequence && again.joined > left, `join ${JSON.stringify(again)}`);
    equal(plain(again.earlier), [{ from: inside[0].sequence + 1, to: left }], "what waits of the interval before");
    await fails("conflict", () => jay.delivery("leave", { pattern: channel, generation: member.generation }), "a late leave of the earlier process");
    const now = await post("inside again");
    equal(sequences((await pull(jay, { pattern: channel })).messages), [inside[1].sequence, now.sequence], "of both intervals");
    await jay.delivery("leave", { pattern: channel, generation: again.generation });
    equal((await ack(again.generation, now.sequence)).ended, true, "all of it");
    await fails("not-found", () => pull(jay, { pattern: channel }), "pull after the end");
  });

  await check("who leaves and discards is given nothing more", async () => {
    member = await become();
    await member.stop();
    await post("never read");
    await member.leave({ discard: true });
    await fails("not-found", () => pull(jay, { pattern: channel }), "pull");
    const [shown, last] = [heard.items.length, await jay.delivery("join", { pattern: channel })];
    must(!last.resumed && last.floor === last.joined && !last.earlier, `join ${JSON.stringify(last)}`);
    await jay.delivery("leave", { pattern: channel });
    await fails("not-found", () => jay.delivery("leave", { pattern: channel }), "nothing was inside, so it ended");
    equal(heard.items.length, shown, "messages shown");
  });

  await check("a membership that ended elsewhere ends here", async () => {
    member = await become();
    await jay.delivery("leave", { pattern: channel, discard: true });
    await member.catchUp();
    await told.find((t) => t.ended, "the end");
    const shown = heard.items.length;
    await post("not its own");
    await jay.settled();
    equal(heard.items.length, shown, "messages shown");
    member.live.leave();
  });

  await check("a live channel has no memberships", async () => {
    await ask({ do: "configure", channel: "team.fleeting", class: "live" });
    const live = await join(jay, "team.fleeting", heard.put);
    equal([live.reply.class, live.reply.durable, live.reply.generation], ["live", false, undefined], "join");
    await fails("not-found", () => pull(jay, { pattern: "team.fleeting" }), "pull");
    const { id } = await ask({ do: "post", channel: "team.fleeting", text: "live" });
    await heard.find((h) => h.message.id === id, "a live message");
    live.live.leave();
    const wide = await jay.delivery("join", { pattern: "team.*" });
    equal([wide.class, wide.durable], ["durable", true], "a pattern with durable channels in it");
    await ask({ do: "post", channel: "team.fleeting", text: "not kept" });
    const kept = await ask({ do: "post", channel: "team.other", text: "kept" });
    equal((await pull(jay, { pattern: "team.*" })).messages.map((m) => [m.channel, m.sequence]), [["team.other", kept.sequence]], "by class");
    await jay.delivery("leave", { pattern: "team.*", discard: true });
  });

  // --- Mentions (9.2) ---

  await check("a mention is told to whom it names, and read with a pull", async () => {
    const named = new Box();
    const pointers = new Box();
    const following = await followMentions(jay, named.put, { tells: (t) => (t.pointer ? pointers.put({ subject: t.pointer.subject, body: t.pointer.json() }) : told.put(t)) });
    await ask({ do: "post", channel: "secret", text: "behind its back", mentions: ["jay"] });
    await ask({ do: "post", channel: "team.hints", text: "not you", mentions: ["mallory"] });
    const sent = await ask({ do: "post", channel: "team.hints", text: "look here", mentions: ["jay", "nobody"] });
    const got = await named.find((m) => m.message.id === sent.id, "the mention");
    equal([got.sender, got.channel, got.stored, textOf(got.message)], [bob.principal, "team.hints", sent.sequence, "look here"], "mention");
    const other = await ask({ do: "post", channel: "team.hints", text: "and here", mentions: [me] });
    await named.find((m) => m.message.id === other.id, "the mention by its principal");
    const pointer = await pointers.find((p) => p.body.sequence === sent.sequence, "the pointer");
    const { v, sequence, sender, ...rest } = pointer.body;
    equal([pointer.subject, v, sequence, sender, rest], [jay.subject("dlv", me, jay.me.uid), 1, sent.sequence, bob.principal, { channel: "team.hints" }], "pointer");
    equal([named.items.length, pointers.items.length], [2, 2], "mentions and pointers");
    await following.read;
    following.stop();
  });

  await check("a mention that was handled is given no more, one that was not is", async () => {
    const page = await pull(jay, { mentions: true });
    equal([page.messages, page.next], [[], undefined], "handled mentions");
    const away = await ask({ do: "post", channel: "team.hints", text: "while you were away", mentions: ["jay"] });
    const back = new Box();
    const following = await followMentions(jay, back.put, { tells: told.put });
    const { sequence } = await back.find((m) => m.stored === away.sequence, "the mention");
    await following.read;
    following.stop();
    await fails("failed-precondition", () => jay.delivery("ack", { mentions: true, floor: sequence + 1000 }), "a position beyond the end");
    await fails("bad-request", () => jay.delivery("ack", { mentions: true, pattern: channel, floor: sequence }), "both");
    await fails("bad-request", () => pull(jay, {}), "neither");
    equal((await pull(jay, { mentions: true })).messages, [], "after it");
  });

  await check("a durable member is given the message and no pointer", async () => {
    const { generation } = await jay.delivery("join", { pattern: "team.hints" });
    const sent = await ask({ do: "post", channel: "team.hints", text: "as a member", mentions: ["jay"] });
    equal(sequences((await pull(jay, { pattern: "team.hints" })).messages), [sent.sequence], "as a member");
    await jay.delivery("leave", { pattern: "team.hints", generation, discard: true });
    const later = await ask({ do: "post", channel: "team.hints", text: "after it", mentions: ["jay"] });
    const back = new Box();
    const following = await followMentions(jay, back.put, { tells: told.put });
    await back.find((m) => m.stored === later.sequence, "the mention after it");
    equal(back.items.map((m) => m.stored), [later.sequence], "mentions");
    await following.read;
    following.stop();
    must(!told.items.some((t) => t.error), `${JSON.stringify(told.items.find((t) => t.error)?.error)}`);
  });

  // --- Receipts and reach (11.8) ---

  const receipt = (who, id, more) => who.delivery("receipt", { id, ...more });
  const away = await connect(server, await credential("away", 600_000), { name: "Away" });

  await check("a receipt follows a direct message", async () => {
    const sent = await jay.direct("local.away", "for when you are back");
    const at = { kind: "direct", sequence: sent.sequence };
    const stage = async (who = jay, more = at) => {
      const r = await receipt(who, sent.id, more);
      equal([r.id, r.kind, r.sender, r.to, r.sequence], [sent.id, "direct", me, "local.away", sent.sequence], "receipt");
      must(r.size > 100 && Math.abs(r.storedMs - Date.now()) < 60_000, `receipt ${JSON.stringify(r)}`);
      equal([r.recipients.length, r.recipients[0].principal, r.recipients[0].stage], [1, "local.away", r.stage], "recipients");
      return r;
    };
    const stored = await stage();
    equal([stored.stage, stored.recipients[0].reason], ["stored", "offline"], "before it was read");
    equal((await stage(jay, {})).stage, "stored", "by its id alone");
    equal((await stage(jay, { since: Date.now() - 60_000 })).stage, "stored", "by its id and a time");
    const [{ delivery: d }] = await arrivals(away.directQueue(), { batch: 1 }, away);
    equal((await stage()).stage, "handed-over", "while it is handled");
    await d.confirm();
    equal((await stage()).stage, "handled", "after it was acknowledged");
    const answer = await away.direct(me, { parts: [], replyTo: sent.id });
    equal([(await stage()).stage, (await stage()).recipients[0].answer], ["answered", answer.id], "after the answer");
    equal((await stage(away)).stage, "answered", "to its recipient");
    const [{ delivery: reply }] = await arrivals(jay.directQueue(), { batch: 1 });
    equal(reply.message.replyTo, sent.id, "the answer");
    await reply.confirm();
    for (const more of [at, {}]) await fails("not-found", () => receipt(mallory, sent.id, more), "a receipt for another");
    await fails("not-found", () => receipt(jay, "never-sent", {}), "a receipt for nothing");
    await fails("bad-request", () => receipt(jay, sent.id, { sequence: sent.sequence }), "a sequence without a kind");
  });

  await check("a receipt follows a channel message to its members", async () => {
    const { generation } = await mallory.delivery("join", { pattern: "team.js" });
    const sent = await jay.post("team.js", "for the members");
    const stage = async () => (await receipt(jay, sent.id, { kind: "channel", sequence: sent.sequence })).recipients;
    equal((await stage()).map((r) => [r.principal, r.stage]), [[dot(mallory.me), "stored"]], "before it was read");
    await mallory.delivery("ack", { pattern: "team.js", generation, floor: sent.sequence });
    equal((await stage()).map((r) => [r.principal, r.stage]), [[dot(mallory.me), "handled"]], "after it was read");
    await mallory.delivery("leave", { pattern: "team.js", discard: true });
  });

  await check("a sender hears of its dead letter", async () => {
    const events = new Box();
    const sub = await jay.subscribe(jay.subject("epe", "delivery", "*", "*", "receipt", me), (msg) => events.put(msg.json()));
    const sent = await jay.direct("local.away", "nobody can use this");
    const [{ delivery: d }] = await arrivals(away.directQueue(), { batch: 1 }, away);
    d.term("cannot be used");
    const event = await events.find((e) => e.id === sent.id, "the event");
    equal([event.kind, event.sequence, event.recipient.principal, event.recipient.stage, event.recipient.reason],
      ["direct", sent.sequence, "local.away", "dead", "cannot be used"], "event");
    equal((await receipt(jay, sent.id, { kind: "direct", sequence: sent.sequence })).stage, "dead", "stage");
    sub.unsubscribe();
  });

  await check("a message that an operator puts back is shown again", async () => {
    const sent = await ask({ do: "direct", to: me, text: "no use" });
    const [{ delivery: first }] = await arrivals(jay.directQueue(), { batch: 1 });
    equal([first.message.id, first.requeued], [sent.id, false], "the first time");
    first.term("no use");
    const { sequence } = await ask({ do: "requeue", id: sent.id });
    const [{ delivery: again }] = await arrivals(jay.directQueue(), { batch: 1 });
    equal([again.message.id, again.sequence, again.requeued, again.delivered], [sent.id, sequence, true, 1], "put back");
    must(sequence > sent.sequence, `sequence ${sequence}`);
    await again.confirm();
    await nothing(jay.directQueue(), "after it was handled");
  });

  await check("reach tells what would become of a message", async () => {
    const reach = (to) => jay.delivery("reach", to);
    const tier = ({ tier, live }) => [tier, live];
    equal(tier(await reach({ to: bob.principal })), ["live", 1], "to who is there");
    const waits = await jay.direct("local.away", "it waits");
    const later = await reach({ to: "local.away" });
    equal([tier(later), later.waiting > 0, later.reason !== ""], [["stored", 0], true, true], "to who is away");
    equal(tier(await reach({ to: "local.nobody" })), ["nobody", 0], "to nobody");
    equal((await reach({ role: "reviewer" })).tier, "live", "to a role");
    equal((await reach({ role: "nobodys" })).tier, "nobody", "to a role that nobody holds");
    const { mentions } = await reach({ channel: "team.hints", mentions: ["bob", "nobody", "jay", "local.away"] });
    equal(mentions.map((m) => [m.name, m.principal, m.tier, m.reason]), [
      ["bob", bob.principal, "live", undefined], ["nobody", undefined, "nobody", "unknown"], ["jay", me, "nobody", "self"],
      ["local.away", "local.away", "nobody", "may not read"],
    ], "mentions");
    await fails("permission-denied", () => reach({ channel: "secret", mentions: ["bob"] }), "a channel that may be neither read nor posted to");
    await fails("bad-request", () => reach({ to: bob.principal, role: "reviewer" }), "two at once");
    must(waits.sequence > 0, "not stored");
  });

  await away.close();
}
