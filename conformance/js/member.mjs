// Membership and mentions (9.1, 9.2, 11.6, 11.7): what was posted while a participant was away.
import { Failure } from "./client.mjs";
import { dot, isInteger, receive } from "./contract.mjs";

// join makes the participant a member of the channels of a pattern and hands each message of its own to handle({message,
// sender, channel, sequence}), one after the other; what handle has returned of is handled. tells is called with what happens
// besides: {backstop: false} while only the connection brings messages, {loss}, {ended}.
export async function join(participant, pattern, handle, { tells = () => {}, limit } = {}) {
  const membership = new Membership(participant, pattern, handle, tells, limit);
  await membership.begin();
  return membership;
}

class Membership {
  constructor(participant, pattern, handle, tells, limit) {
    Object.assign(this, { participant, pattern, handle, tells, limit });
    this.early = []; // live copies that wait: for the answer to join, or for what comes before them
    this.surfaced = new Set(); // sequences above through, or not handled
    this.unhandled = new Set();
    this.told = new Set(); // losses
    this.work = Promise.resolve(); // the end of the last handling
  }

  async begin() {
    this.live = await this.participant.copies(this.pattern, (copy) => this.hear(copy)); // before the join [MBR-1]
    this.tells({ backstop: false });
    this.catching = true;
    try {
      this.reply = await this.participant.delivery("join", { pattern: this.pattern });
    } catch (error) {
      this.live.leave();
      throw error;
    }
    this.generation = this.reply.generation;
    this.through = this.reply.durable ? this.reply.floor : this.reply.joined;
    if (this.reply.durable) this.tells({ backstop: true });
    await this.#read(); // [MBR-3]
  }

  hear(copy) {
    if (this.ended) return; // [MBR-4]
    if (this.catching) return void this.early.push(copy);
    if (copy.sequence <= this.reply.joined || this.#known(copy.sequence)) return;
    if (this.reply.durable && copy.previous > this.reply.joined && !this.#known(copy.previous)) { // something is missing [MBR-3]
      this.early.push(copy);
      this.catchUp().catch((error) => this.tells({ error }));
      return;
    }
    this.#surface(copy);
  }

  #known(sequence) {
    return sequence <= this.through || this.surfaced.has(sequence);
  }

  #surface({ message, sender, channel, sequence }) {
    this.surfaced.add(sequence);
    if (this.participant.repeats(message)) return;
    this.unhandled.add(sequence);
    this.work = this.work.then(() => this.handle({ message, sender, channel, sequence })).then(() => this.unhandled.delete(sequence));
  }

  // catchUp reads what was missed. It is for whoever lost its connection, and for now and then.
  async catchUp() {
    if (this.catching || this.ended || !this.reply.durable) return;
    this.catching = true;
    await this.#read();
  }

  async #read() {
    try {
      while (this.reply.durable) {
        const page = await pull(this.participant, { pattern: this.pattern, after: this.through, limit: this.limit });
        if (page.generation !== this.generation) throw new Failure("not-found", "the membership is another one");
        for (const loss of page.losses ?? []) this.#lose(loss); // before the floor moves [MBR-5]
        for (const m of page.messages) if (!this.#known(m.sequence)) this.#surface(m);
        this.through = page.through;
        if (!page.next) break;
      }
    } catch (error) {
      if (error.code !== "not-found") throw error;
      this.ended = true;
      this.tells({ ended: true });
    } finally {
      this.catching = false;
    }
    const early = this.early;
    this.early = [];
    early.forEach((copy) => this.hear(copy));
  }

  #lose(loss) {
    const key = JSON.stringify(loss);
    if (this.told.has(key)) return;
    this.told.add(key);
    this.tells({ loss });
  }

  // position is what may be reported [MBR-2]: through pull went without a hole, and what was handled beyond.
  position() {
    const floor = Math.min(this.through, ...[...this.unhandled].map((n) => n - 1));
    const handled = [];
    for (const n of [...this.surfaced].sort((a, b) => a - b)) {
      if (n <= floor || this.unhandled.has(n)) continue;
      if (handled.at(-1)?.to === n - 1) handled.at(-1).to = n;
      else handled.push({ from: n, to: n });
    }
    return { floor, handled: handled.slice(0, 256) };
  }

  // sync reports the position and returns what the service keeps of it.
  async sync() {
    await this.work;
    return this.participant.delivery("ack", { pattern: this.pattern, generation: this.generation, ...this.position() });
  }

  // stop goes away and stays a member.
  async stop() {
    this.live.leave();
    const reply = await this.sync();
    this.ended = true;
    return reply;
  }

  async leave({ discard = false } = {}) {
    this.live.leave();
    this.ended = true;
    return this.participant.delivery("leave", { pattern: this.pattern, generation: this.generation, discard });
  }
}

// pull reads one page of what is not handled, and checks it.
export async function pull(participant, { limit, ...place }) {
  const page = await participant.delivery("pull", { ...place, ...(limit && { limit }) });
  if (!Array.isArray(page.messages) || !isInteger(page.through)) throw new Failure("internal", "a page without messages or through");
  for (const { sender, channel, message } of page.messages) {
    // What a receiver must not show of a live copy it must not show of a page.
    const checked = receive(participant.subject("chat", sender, channel), Buffer.from(JSON.stringify(message)));
    if (dot(checked.subject.sender) !== sender) throw new Failure("internal", "a page with another sender");
  }
  return page;
}

// followMentions hands the messages that mention this lifecycle to handle({message, sender, channel, sequence, stored}), those
// of before first. What arrives on its own dlv subject is a reason to read and nothing more.
export async function followMentions(participant, handle, { tells = () => {} } = {}) {
  let after = 0;
  let reading = Promise.resolve();
  const read = async () => {
    for (let more = true; more; ) {
      const page = await pull(participant, { mentions: true, after });
      for (const loss of page.losses ?? []) tells({ loss });
      for (const m of page.messages) if (!participant.repeats(m.message)) await handle(m);
      after = page.through;
      more = page.next !== undefined;
      if (page.messages.length > 0 || page.losses) await participant.delivery("ack", { mentions: true, floor: after });
    }
  };
  const again = () => (reading = reading.then(read).catch((error) => tells({ error })));
  const own = participant.subject("dlv", dot(participant.me), participant.me.uid);
  const sub = await participant.subscribe(own, (msg) => {
    tells({ pointer: msg });
    again();
  });
  await again();
  return { stop: () => sub.unsubscribe(), get read() { return reading; } };
}
