// The roster as it changes (11.1).
import { checkPresence, decodeRosterEvent, parseEventSubject } from "./contract.mjs";

// watchRoster follows the roster as a participant sees it [ROS-1] and calls changed(view) after each change of it. A view
// has entries by principal and stale: while that is set, nobody may be called offline.
export async function watchRoster(participant, changed) {
  let view = { entries: new Map(), stale: true };
  let early = []; // what comes while the pages are read
  let silence;
  let stopped = false;
  const read = async () => {
    early = [];
    view = { ...(await participant.roster()), stale: false };
    const events = early;
    early = undefined;
    changed(view);
    events.forEach(apply);
    listen();
  };
  const again = () => {
    if (early) return; // reading already
    view.stale = true;
    early = [];
    changed(view);
    const retry = (error) => {
      participant.tells({ stale: error });
      if (!stopped) setTimeout(() => read().catch(retry), 1000);
    };
    read().catch(retry);
  };
  const listen = () => {
    clearTimeout(silence);
    if (!stopped) silence = setTimeout(again, 6000);
  };
  const apply = ({ from, event }) => {
    if (early) return void early.push({ from, event });
    listen();
    if (from.instance !== view.instance || from.epoch !== view.epoch || event.kind === "end") return again();
    if (!["change", "remove", "alive"].includes(event.kind) || event.sequence <= view.sequence) return;
    if (event.kind === "alive" || event.sequence !== view.sequence + 1) return again(); // a hole
    view.sequence = event.sequence;
    const principal = event.principal ?? event.entry.principal;
    if (event.sequence <= (view.entries.get(principal)?.sequence ?? 0)) return; // a later page knew already
    if (event.kind === "remove") view.entries.delete(principal);
    else view.entries.set(principal, event.entry);
    changed(view);
  };
  const sub = await participant.subscribe(participant.subject("epe", "delivery", "*", "*", "roster"), (msg) => {
    try {
      const event = decodeRosterEvent(msg.data);
      if (event.kind === "change") checkPresence(event.entry.principal, event.entry.presence);
      apply({ from: parseEventSubject(msg.subject), event });
    } catch (error) {
      participant.drop(error, msg.subject);
    }
  });
  await read();
  return {
    stop: () => {
      stopped = true;
      clearTimeout(silence);
      sub.unsubscribe();
    },
  };
}
