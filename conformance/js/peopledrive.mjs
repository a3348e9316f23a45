// The scenario of a space of people: a person and an agent that follow SPEC.md 2.4 alone, beside Go people, whom the partner moves
// (see harness.mjs). Usage: node peopledrive.mjs <public address> <capability file> <capability file of another space of the same
// identity provider>
import { generateKeyPairSync, sign } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as listen } from "node:net";
import { errors } from "@nats-io/transport-node";
import { within } from "./client.mjs";
import { dot } from "./contract.mjs";
import { ask, Box, check, equal, fails, finish, must, patience, textOf } from "./harness.mjs";
import { checkBearer, enter, Exchange, findMesh, Key, ownerOf, request, signIn, Stay } from "./people.mjs";

const [address, capabilityFile, otherFile] = process.argv.slice(2);
const capabilityOf = (file) => () => JSON.parse(readFileSync(file)).cap;
const here = JSON.parse(readFileSync(capabilityFile));
const there = JSON.parse(readFileSync(otherFile));
const claimsOf = (token) => JSON.parse(Buffer.from(token.split(".")[1], "base64url"));
const headerOf = (token) => JSON.parse(Buffer.from(token.split(".")[0], "base64url"));
const now = () => Math.floor(Date.now() / 1000);

// refused says that the broker does not let somebody in.
async function refused(server, bearer, alter, what) {
  let connected;
  try {
    connected = await enter(server, bearer, { alter });
  } catch (error) {
    must(error instanceof errors.AuthorizationError, `${what}: ${error.stack}`);
    return;
  }
  await connected.nc.close();
  throw new Error(`${what} was let in`);
}

// --- Where everything is ---

await check("the owner of the document's vector", async () => {
  const key = Buffer.from(Array.from({ length: 32 }, (_, i) => i));
  equal(ownerOf(key, "https://idp.example", "user-1"), "u_g5mclrofwa6pirb3p4yeigemze", "owner");
  for (const sub of ["q\"u\\o\u0001te", "line\u2028sep\u2029", "<é>&😀", "tab\t"]) {
    const { owner } = await ask({ do: "derive", issuer: "https://idp.example/", sub });
    equal(ownerOf(key, "https://idp.example/", sub), owner, `owner of ${JSON.stringify(sub)}`);
  }
});

let mesh;
await check("the well-known document says where everything is, at both addresses", async () => {
  mesh = await findMesh(address);
  const loopback = await findMesh(here.url, capabilityOf(capabilityFile));
  const { issuer, clientId, audience, server } = await ask({ do: "pin" });
  equal([mesh.server, mesh.exchange, mesh.tlsRequired], [server, address, false], "addresses");
  equal([mesh.idp.issuer, mesh.idp.clientId, mesh.idp.audience], [issuer, clientId, audience], "identity provider");
  equal([loopback.exchange, here.ver, here.publicUrl], [address, 1, address], "what the machine itself is told");
  const health = { ...(await request(`${address}/health`, { method: "GET" })).fields };
  equal(health, { ok: true, space: mesh.space, issuer: `urn:cotal:auth:${mesh.space}` }, "health");
});

await check("what is no route, no method or from a page is refused", async () => {
  const codes = [];
  const tries = [["/elsewhere", "GET"], ["/exchange", "GET"], ["/jwks", "POST"], ["/exchange", "POST", { Origin: "https://a.example" }]];
  for (const [path, method, headers] of tries) {
    const { status, fields } = await request(address + path, { method, headers, ...(method === "POST" && { json: {} }) });
    codes.push([status, fields.code]);
  }
  equal(codes, [[404, "not-found"], [405, "malformed"], [405, "malformed"], [403, "permission-denied"]], "statuses and codes");
});

await check("nothing goes in plain text to another machine, nor where a redirect points", async () => {
  await fails("failed-precondition", () => findMesh("http://mesh.example"), "document");
  await fails("failed-precondition", () => new Exchange("http://192.0.2.1").bearer({ idpToken: "x" }), "exchange");
  await fails("failed-precondition", () => enter("nats://192.0.2.1:4222", fake(mesh)), "broker");
  const asked = [];
  const elsewhere = createServer((q, r) => {
    asked.push(q.url);
    r.writeHead(307, { Location: `http://127.0.0.1:${elsewhere.address().port}/stolen`, "Content-Type": "application/json" }).end("{}");
  });
  await new Promise((resolve) => elsewhere.listen(0, "127.0.0.1", resolve));
  await fails("internal", () => new Exchange(`http://127.0.0.1:${elsewhere.address().port}`).bearer({ idpToken: "x" }), "redirect");
  elsewhere.closeAllConnections();
  elsewhere.close();
  equal(asked, ["/exchange"], "what was asked");
});

// fake is a bearer that nobody made.
function fake({ sentinel, space }) {
  const me = { space, owner: "u_g5mclrofwa6pirb3p4yeigemze", actor: "ada", uid: "d6kwfz2h7mcn4qpxrt3vyjb5ae", inbox: "x", expires: Date.now() + 60_000 };
  return { answer: { sentinel, token: "a.b.c" }, me, key: new Key() };
}

// --- Signing in ---

let ada, eve;
await check("people sign in by the device flow", async () => {
  const approve = (user) => (code) => ask({ do: "approve", code, user });
  [ada, eve] = [await signIn(mesh.idp, approve("ada")), await signIn(mesh.idp, approve("eve"))];
  const { iss, aud } = claimsOf(await ada.proof());
  equal([iss, [aud].flat().includes(mesh.idp.audience)], [mesh.idp.issuer, true], "whose token, and for whom");
});

await check("who refuses is not signed in", async () => {
  await fails("permission-denied", () => signIn(mesh.idp, (code) => ask({ do: "approve", code, user: "ada", deny: true })), "login");
});

await check("a session goes on", async () => {
  await ada.renew?.();
  equal(claimsOf(await ada.proof()).sub, (await ask({ do: "owner", user: "ada" })).sub, "subject");
});

// --- The exchange ---

const key = new Key();
const exchange = new Exchange(address, { key }); // proves the key
const plain = new Exchange(address);
const loopback = new Exchange(here.url, { key, capability: capabilityOf(capabilityFile) });
const { owner } = await ask({ do: "owner", user: "ada" });
const person = async (more) => ({ idpToken: await ada.proof(), actor: "ada", ...more });

await check("without a grant nobody gets a bearer, and the sentence names the command", async () => {
  const no = await fails("not-granted", async () => exchange.bearer(await person()), "exchange");
  must(no.status === 403 && no.message.includes(`cotal actor grant ada --owner ${owner}`), no.message);
});

let bearer, keys;
await check("with a key proved, the bearer names it and says what was granted", async () => {
  const lists = { subscribe: ["general", "team.>"], publish: ["general", "team.>"] };
  const granted = await ask({ do: "grant", user: "ada", actor: "ada", ...lists, scope: ["spawn", "com_acme_deploy.run"] });
  bearer = await exchange.bearer(await person());
  const { answer, me } = bearer;
  equal([me.owner, me.actor, me.uid, answer.epoch, me.space], [owner, "ada", granted.uid, granted.epoch, mesh.space], "who");
  equal({ subscribe: me.subscribe, publish: me.publish }, lists, "lists");
  equal([me.commands, me.role, me.profile], [["com_acme_deploy.run"], undefined, "agent"], "what else");
  must(answer.exp - answer.iat <= 900 && answer.exp <= claimsOf(await ada.proof()).exp, "lives too long");
  equal([answer.sentinel.split(".").length, answer.server], [3, mesh.server], "sentinel and server");
});

await check("the bearer is signed by a published key and says what the answer says", async () => {
  keys = (await request(`${address}/jwks`, { method: "GET" })).fields.keys;
  const { answer, me } = bearer;
  const claims = checkBearer(answer.token, { space: mesh.space, keys });
  const { kty, crv, x } = key.jwk;
  equal(claims.cnf, { jwk: { crv, kty, x } }, "cnf");
  equal(claims.act, { owner: me.owner, actor: me.actor, uid: me.uid, epoch: answer.epoch, inbox: me.inbox }, "act");
  equal([claims.sub, claims.iat, claims.exp, claims.scope], [me.owner, answer.iat, answer.exp, answer.scope], "the rest");
});

await check("whoever takes bearers refuses what is none", async () => {
  const { kty, crv, x } = key.jwk;
  const [own, good] = [{ kid: "own", kty, crv, x }, claimsOf(bearer.answer.token)];
  const make = (claims, header) => key.jws({ alg: "EdDSA", kid: "own", ...header }, { ...good, ...claims });
  const look = (token) => checkBearer(token, { space: mesh.space, keys: [...keys, own] });
  look(make({}));
  const no = (token) => fails("unauthenticated", async () => look(token), token);
  const without = (claim) => key.jws({ alg: "EdDSA", kid: "own" }, Object.fromEntries(Object.entries(good).filter(([k]) => k !== claim)));
  for (const claim of ["exp", "iat", "nbf", "jti", "ver", "iss", "aud"]) await no(without(claim));
  for (const claims of [
    { iss: "urn:cotal:auth:other" }, { aud: "other" }, { ver: 2 }, { exp: now() - 1 }, { nbf: now() + 60 }, { exp: good.iat + 901 },
  ]) {
    await no(make(claims));
  }
  for (const header of [{ alg: "none" }, { alg: "HS256" }, { jwk: { kty, crv, x } }, { kid: "another" }, { crit: ["b64"] }]) await no(make({}, header));
  await no(bearer.answer.token.replace(/.....$/, "AAAAA"));
});

await check("without a key the bearer names none", async () => {
  const { answer } = await plain.bearer(await person());
  equal(claimsOf(answer.token).cnf, undefined, "cnf");
});

await check("the loopback address wants its capability, and gives the same", async () => {
  const no = await fails("capability-missing", async () => new Exchange(here.url, { key }).bearer(await person()), "without");
  equal(no.status, 401, "status");
  const stranger = new Exchange(here.url, { capability: capabilityOf(otherFile) });
  await fails("capability-missing", async () => stranger.bearer(await person()), "that of another space");
  equal((await loopback.bearer(await person())).me.uid, bearer.me.uid, "uid");
});

await check("a proof of the key is for one request, now, and by an Ed25519 key", async () => {
  const proof = key.proof(exchange.url);
  await exchange.bearer(await person(), proof);
  await fails("replayed", async () => exchange.bearer(await person(), proof), "once more");
  const { kty, crv, x } = key.jwk;
  const claims = { jti: "j1", htm: "POST", htu: exchange.url, iat: now() };
  const ec = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const header = { typ: "dpop+jwt", alg: "ES256", jwk: ec.publicKey.export({ format: "jwk" }) };
  const signed = [header, claims].map((part) => Buffer.from(JSON.stringify(part)).toString("base64url")).join(".");
  for (const [what, bad] of Object.entries({
    "another URL": key.proof(`${here.url}/exchange`), "another method": key.proof(exchange.url, { htm: "GET" }),
    "of before": key.proof(exchange.url, { iat: now() - 65 }), "of later": key.proof(exchange.url, { iat: now() + 65 }),
    "another type": key.jws({ typ: "JWT", alg: "EdDSA", jwk: { kty, crv, x } }, claims),
    "of a key that is not shown": new Key().jws({ typ: "dpop+jwt", alg: "EdDSA", jwk: { kty, crv, x } }, claims),
    "P-256": `${signed}.${sign("sha256", Buffer.from(signed), { key: ec.privateKey, dsaEncoding: "ieee-p1363" }).toString("base64url")}`,
  })) {
    await fails("key-proof-refused", async () => exchange.bearer(await person(), bad), what);
  }
});

await check("how long, and how much of the scope, is asked for", async () => {
  const { answer } = await exchange.bearer(await person({ ttlSec: 60, scope: ["com_acme_deploy.run"] }));
  equal([answer.exp - answer.iat, answer.scope], [60, ["com_acme_deploy.run"]], "life and scope");
  const most = await exchange.bearer(await person({ ttlSec: 90_000, scope: [] }));
  must(most.answer.exp - most.answer.iat <= 900, "lives longer than 900 s");
  equal(most.answer.scope, [], "nothing of the scope");
  await fails("malformed", async () => exchange.bearer(await person({ ttlSec: 0 })), "no life");
  await fails("scope-missing", async () => exchange.bearer(await person({ scope: ["admin"] })), "more than the grant");
});

await check("a view is for people at the loopback address who hold the scope for it", async () => {
  await fails("view-refused", async () => exchange.bearer(await person({ view: "deployer" })), "at the public address");
  await fails("scope-missing", async () => loopback.bearer(await person({ view: "admin" })), "without the scope");
  const { me, answer } = await loopback.bearer(await person({ view: "deployer" }));
  equal([answer.view, me.profile, me.subscribe, me.publish], ["deployer", "deployer", [], []], "what it brings");
});

await check("what is not the form of a request is refused", async () => {
  const proof = await ada.proof();
  for (const members of [
    {}, { idpToken: proof, actorToken: "x" }, { idpToken: proof, color: "red" }, { actor: "ada" }, { idpToken: proof, scope: "spawn" },
  ]) {
    await fails("malformed", () => loopback.bearer(members), JSON.stringify(Object.keys(members)));
  }
});

await check("an identity token is the provider's, and for this space", async () => {
  const proof = await ada.proof();
  const [h, p] = proof.split(".");
  await fails("bad-signature", () => loopback.bearer({ idpToken: `${h}.${p}.${key.sign("x")}`, actor: "ada" }), "signed by another");
  await fails("malformed", () => loopback.bearer({ idpToken: "x", actor: "ada" }), "no token");
  const other = new Exchange(there.url, { capability: capabilityOf(otherFile) });
  await fails("wrong-audience", () => other.bearer({ idpToken: proof, actor: "ada" }), "at another space");
  for (const at of [loopback, other]) {
    const no = await at.bearer({ idpToken: bearer.answer.token, actor: "ada" }).catch((error) => error);
    must(["bad-signature", "wrong-issuer"].includes(no.code), `a bearer in place of a proof: ${no}`);
  }
});

await check("another person is another owner, whatever the name", async () => {
  await fails("not-granted", async () => exchange.bearer({ idpToken: await eve.proof(), actor: "ada" }), "eve as ada");
  await ask({ do: "grant", user: "eve", actor: "eve", subscribe: ["general"], publish: [], role: "reviewer" });
  const { me } = await exchange.bearer({ idpToken: await eve.proof() }); // her only actor
  equal([me.owner, me.actor, me.role, me.publish], [(await ask({ do: "owner", user: "eve" })).owner, "eve", "reviewer", []], "eve");
});

await check("who has several actors names one", async () => {
  await ask({ do: "grant", user: "ada", actor: "second", subscribe: [], publish: [] });
  const no = await fails("malformed", async () => exchange.bearer({ idpToken: await ada.proof() }), "no actor");
  must(no.message.includes("ada, second"), no.message);
  equal((await exchange.bearer(await person({ actor: "second" }))).me.actor, "second", "actor");
});

// --- The form of RFC 8693 ---

let exchanged;
await check("the form of RFC 8693 gives the same", async () => {
  const parameters = { subject: await ada.proof(), actor: "ada", scope: "com_acme_deploy.run", audience: mesh.space, color: "red" };
  exchanged = await exchange.token(parameters, mesh.sentinel);
  const { answer } = exchanged;
  equal([answer.token_type, answer.issued_token_type, answer.scope], ["DPoP", "urn:ietf:params:oauth:token-type:jwt", "com_acme_deploy.run"], "answer");
  must(answer.expires_in > 0 && answer.expires_in <= 900, `expires in ${answer.expires_in}`);
  const { me } = exchanged.bearer;
  equal([me.owner, me.uid, me.commands], [owner, bearer.me.uid, ["com_acme_deploy.run"]], "claims");
  equal(checkBearer(answer.access_token, { space: mesh.space, keys }).cnf.jwk.x, key.jwk.x, "key");
  const unbound = await plain.token({ subject: await ada.proof(), actor: "ada" }, mesh.sentinel);
  equal(unbound.answer.token_type, "N_A", "without a key");
  const access = "urn:ietf:params:oauth:token-type:access_token";
  const asAccess = await plain.token({ subject: await ada.proof(), actor: "ada", requested_token_type: access }, mesh.sentinel);
  equal([asAccess.answer.token_type, asAccess.answer.issued_token_type], ["Bearer", access], "as an access token");
});

await check("its refusals are those of OAuth, with the reason", async () => {
  const subject = await ada.proof();
  for (const [oauth, code, parameters] of [
    ["invalid_target", "malformed", { audience: "elsewhere" }], ["invalid_scope", "scope-missing", { scope: "admin" }],
    ["invalid_request", "not-granted", { actor: "nobody" }], ["invalid_request", "malformed", { type: "urn:ietf:params:oauth:token-type:saml2" }],
    ["unsupported_grant_type", "malformed", { grant_type: "password" }],
  ]) {
    const no = await fails(code, () => loopback.token({ subject, actor: "ada", ...parameters }), oauth);
    equal([no.oauth, no.status], [oauth, 400], code);
  }
  const wrong = loopback.key.proof(loopback.url, { htm: "PUT" });
  const form = {
    grant_type: "urn:ietf:params:oauth:grant-type:token-exchange", subject_token: subject,
    subject_token_type: "urn:ietf:params:oauth:token-type:id_token", actor: "ada",
  };
  equal((await fails("key-proof-refused", () => loopback.send({ form }, wrong), "proof")).oauth, "invalid_dpop_proof", "error");
});

// --- Connections ---

const connections = [];
const come = async (b, options) => {
  const participant = await enter(mesh.server, b, options);
  connections.push(participant);
  return participant;
};
let jay, bob;
const heard = new Box();

await check("with sentinel, bearer and signed nonce a person is let in, posts and hears", async () => {
  bob = await ask({ do: "bob" });
  jay = await come(bearer, { name: "Jay" });
  await jay.listen("general", heard.put);
  const { id } = await jay.post("general", "from JavaScript");
  const go = await ask({ do: "heard", id });
  equal([go.sender, go.channel], [dot(bearer.me), "general"], "what Go hears");
  await ask({ do: "post", id: "from-go", channel: "general", text: "from Go" });
  const got = await heard.find((d) => textOf(d.message) === "from Go", "the message of Go");
  equal(got.sender, bob.principal, "sender");
});

// What takes its time begins now and is looked at later: a connection that renews, and one that does not.
const [renewals, renewed] = [new Box(), new Box()];
const staying = await new Stay(mesh.server, async () => exchange.bearer(await person({ ttlSec: 40 })), {
  tells: (what) => renewals.put({ what, at: Date.now() / 1000 }), begin: (p) => p.listen("team.renewal", renewed.put),
}).start();
const [first, ends] = [staying.participant, staying.bearer.answer.exp];
const short = await exchange.bearer(await person({ ttlSec: 20 }));
const cutOff = (await come(short)).nc.closed().then(() => Date.now() / 1000);

await check("requests are answered, and direct messages come", async () => {
  const { channels } = await jay.channels();
  must(channels.some((c) => c.channel === "general"), JSON.stringify(channels));
  await ask({ do: "direct", id: "to-jay", to: dot(bearer.me), text: "for you" });
  let told;
  for await (const { delivery } of jay.pull(jay.directQueue(), { batch: 1 })) {
    if (!delivery) continue;
    told = textOf(delivery.message);
    await delivery.confirm();
  }
  equal(told, "for you", "direct message");
});

await check("outside of what was granted the broker refuses", async () => {
  await fails("permission-denied", () => jay.post("secret", "x"), "post");
  await fails("permission-denied", () => jay.listen("secret", () => {}), "listen");
  await fails("permission-denied", () => jay.listen(">", () => {}), "listen to all");
  await fails("permission-denied", () => jay.subscribe("_INBOX_another.>", () => {}), "inbox of another");
  await fails("permission-denied", () => jay.ask(jay.subject("chat", bob.principal, "general"), "{}"), "post as another");
});

await check("a stolen bearer is worth nothing without its key", async () => {
  const thief = new Key();
  await refused(mesh.server, { ...bearer, key: thief }, undefined, "another key");
  await refused(mesh.server, bearer, ({ sig, ...rest }) => rest, "no signature");
  await refused(mesh.server, bearer, (fields, nonce) => ({ ...fields, sig: key.sign(`${nonce}x`) }), "another nonce");
  await refused(mesh.server, bearer, (fields, nonce) => ({ ...fields, sig: thief.sign(nonce), nkey: "UAAAA" }), "with a name for the key");
});

await check("sentinel or bearer alone, or a changed one, let nobody in", async () => {
  await refused(mesh.server, bearer, ({ auth_token, ...rest }) => rest, "sentinel alone");
  await refused(mesh.server, bearer, ({ jwt, ...rest }) => rest, "bearer alone");
  await refused(mesh.server, fake(mesh), undefined, "what is no bearer");
  const { kty, crv, x } = key.jwk;
  const forged = key.jws({ alg: "EdDSA", kid: keys[0].kid }, { ...claimsOf(bearer.answer.token), cnf: { jwk: { crv, kty, x } } });
  await refused(mesh.server, { ...bearer, answer: { ...bearer.answer, token: forged } }, undefined, "signed by the client");
  await refused((await ask({ do: "other" })).server, bearer, undefined, "at another space");
});

await check("a bearer that names no key needs no signature", async () => {
  const p = await come(await plain.bearer(await person()));
  await p.post("general", "unbound");
});

await check("a bearer of RFC 8693 connects with the sentinel of the document", async () => {
  const p = await come(exchanged.bearer);
  await p.post("team.a", "exchanged");
  await fails("permission-denied", () => p.post("secret", "x"), "outside");
});

await check("what a broker sends in place of a nonce is not signed", async () => {
  for (const nonce of ["eyJ.eyJ", "", "n".repeat(65)]) {
    const lines = [];
    const server = listen((socket) => {
      socket.on("error", () => {}).on("data", (d) => lines.push(d.toString())).unref();
      socket.write(`INFO {"server_id":"x","version":"2.15.0","max_payload":1024,"headers":true,"nonce":"${nonce}"}\r\n`);
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    const outcome = await within(patience, enter(`nats://127.0.0.1:${server.address().port}`, bearer).then(() => "connected", (error) => error));
    equal([outcome.code, lines.join("")], ["failed-precondition", ""], `nonce ${nonce}`);
    server.close().unref();
  }
});

// --- Renewal ---

await check("before a bearer ends a second connection takes over, and nothing is lost", async () => {
  must(!renewals.items.length, `it came before anything was posted: ${JSON.stringify(renewals.items)}`);
  let posted = 0;
  while (!renewals.items.length) {
    await jay.post("team.renewal", `n${posted++}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const [{ what, at }] = renewals.items;
  equal(Object.keys(what), ["renewed"], "what came first");
  must(at < ends, "renewed after the end");
  must(staying.participant !== first && staying.bearer.answer.exp > ends, "another connection under another bearer");
  await jay.post("team.renewal", `n${posted++}`);
  await renewed.find((d) => textOf(d.message) === `n${posted - 1}`, "the last message");
  equal(renewed.items.map((d) => textOf(d.message)), Array.from({ length: posted }, (_, i) => `n${i}`), "messages");
  must(first.nc.isClosed(), "the first connection is still there");
  await staying.close();
});

await check("who does not renew is disconnected when the bearer ends", async () => {
  const at = await within(patience, cutOff);
  must(at !== undefined, "still connected");
  must(at > short.answer.exp - 1.5, `ended ${short.answer.exp - at} s before its end`);
  await fails("expired", () => enter(mesh.server, short), "once more");
  await refused(mesh.server, { ...short, me: { ...short.me, expires: Infinity } }, undefined, "an ended bearer");
});

// --- Agents ---

let agent, secret;
const [agentKey, agentTells] = [new Key(), new Box()];
const agentExchange = new Exchange(here.url, { key: agentKey, capability: capabilityOf(capabilityFile) });

await check("an agent proves the secret of its start, and stays below who started it", async () => {
  const no = await ask({ do: "agent", user: "ada", actor: "helper", subscribe: ["secret"] });
  equal(no.refused, "exceeds-parent", "more than ada");
  secret = await ask({ do: "agent", user: "ada", actor: "helper", subscribe: ["team.>"], publish: ["team.>"] });
  const members = { owner, actor: "helper", actorToken: secret.token };
  for (const wrong of [{ ...members, actorToken: "x" }, { ...members, actor: "nobody" }, { ...members, owner: "u_aaaaaaaaaaaaaaaaaaaaaaaaaa" }]) {
    const no = await fails("actor-token-refused", () => agentExchange.bearer(wrong), "wrong");
    equal(no.message, (await fails("actor-token-refused", () => agentExchange.bearer({ ...members, actorToken: "y" }), "wrong")).message, "one sentence");
  }
  await fails("view-refused", () => agentExchange.bearer({ ...members, view: "deployer" }), "view");
  agent = await new Stay(mesh.server, () => agentExchange.bearer(members), { tells: agentTells.put }).start();
  const { answer } = agent.bearer;
  must(answer.exp - answer.iat <= 300, "an agent's bearer lives longer than 300 s");
  equal(claimsOf(answer.token).act.parent, dot(bearer.me), "parent");
  await agent.participant.post("team.a", "from the agent");
});

await check("an agent may use the form of RFC 8693", async () => {
  const type = "urn:cotal:params:token-type:actor-token";
  const { bearer: b } = await agentExchange.token({ subject: secret.token, type, owner, actor: "helper" }, mesh.sentinel);
  equal([b.me.actor, b.me.uid], ["helper", agent.bearer.me.uid], "who");
});

// --- Taking away ---

let stay;
const tells = new Box();
await check("what is taken away ends connections, and a new bearer holds less", async () => {
  stay = await new Stay(mesh.server, async () => exchange.bearer(await person()), { tells: tells.put }).start();
  const before = stay.bearer;
  await ask({ do: "grant", user: "ada", actor: "ada", subscribe: ["general"], publish: ["general"], scope: ["spawn"] });
  must((await within(patience, jay.nc.closed().then(() => true))) === true, "still connected");
  await tells.find((t) => t.back, "a connection under what is left");
  await refused(mesh.server, before, undefined, "a bearer of before");
  equal([stay.bearer.me.subscribe, stay.bearer.me.commands], [["general"], []], "what is left");
  await stay.participant.post("general", "still here");
  await fails("permission-denied", () => stay.participant.post("team.a", "x"), "what was taken away");
});

await check("who now holds more than the grant above is disconnected too, and told why", async () => {
  equal((await agentTells.find((t) => t.gone, "the end of the agent")).gone, "exceeds-parent", "reason");
  must(agent.participant.nc.isClosed(), "still connected");
});

await check("a connection that lost nothing stays, and a wider grant needs another bearer", async () => {
  const { participant } = stay;
  await ask({ do: "grant", user: "ada", actor: "ada", subscribe: ["general", "team.>"], publish: ["general", "team.>"], scope: ["spawn"] });
  await participant.post("general", "not disturbed");
  must(stay.participant === participant, "connected again");
  await refused(mesh.server, stay.bearer, undefined, "a bearer of the epoch before");
  const p = await come(await exchange.bearer(await person()));
  await p.post("team.a", "wider");
});

await check("a revoked person is disconnected, and the exchange says that it was revoked", async () => {
  agent = await new Stay(mesh.server, () => agentExchange.bearer({ owner, actor: "helper", actorToken: secret.token }), { tells: agentTells.put }).start();
  const last = stay.bearer;
  await ask({ do: "revoke", user: "ada", actor: "ada" });
  const { error } = await tells.find((t) => t.gone === "grant-revoked", "the end");
  must(error.status === 403 && stay.participant.nc.isClosed(), "still connected");
  await refused(mesh.server, last, undefined, "a bearer of before");
  must((await within(patience, agent.participant.nc.closed().then(() => true))) === true, "the agent is still connected");
  const ended = await agentTells.find((t) => t.gone && t.gone !== "exceeds-parent", "the end of the agent");
  equal(ended.gone, "actor-token-refused", "what the agent is told");
});

// --- Limits, last: they last a minute ---

await check("who is refused too often is told to wait, and a good proof still passes", async () => {
  let no;
  for (let i = 0; i < 60 && no?.code !== "too-many-requests"; i++) no = await plain.bearer({ idpToken: "x" }).catch((error) => error);
  equal([no.code, no.status, no.limit], ["too-many-requests", 429, "refusals"], "refusal");
  must(no.retryAfter > 0 && no.retryAfter <= 60, `wait ${no.retryAfter}`);
  equal((await exchange.bearer({ idpToken: await eve.proof() })).me.actor, "eve", "eve");
});

await Promise.all(connections.map((p) => p.nc.close()));
await Promise.all([stay.close(), agent.close()]);
finish();
