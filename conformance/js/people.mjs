// The way into a space of people (2.4): the well-known document, the login, the exchange, and connections that outlive their
// bearers. Node's own library makes the keys, the proofs and the requests.
import { createHmac, createPublicKey, generateKeyPairSync, randomUUID, sign, verify } from "node:crypto";
import { Failure, isLoopback, open } from "./client.mjs";
import { decode, name } from "./contract.mjs";

const text = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
const read = (part) => JSON.parse(Buffer.from(part, "base64url"));

// ownerOf is the owner that stands for a person.
export function ownerOf(key, issuer, sub) {
  const mac = createHmac("sha256", key).update(`cotal-owner-v1:${JSON.stringify([issuer, sub])}`).digest().subarray(0, 16);
  const bits = [...mac].map((b) => b.toString(2).padStart(8, "0")).join("").match(/.{1,5}/g);
  return `u_${bits.map((five) => "abcdefghijklmnopqrstuvwxyz234567"[parseInt(five.padEnd(5, "0"), 2)]).join("")}`;
}

// --- HTTP ---

// request sends what may be a secret: nowhere in plain text but to this machine, and not where a redirect points [PPL-3].
export async function request(url, { method = "POST", headers = {}, json, form } = {}) {
  const { protocol, hostname } = new URL(url);
  if (protocol !== "https:" && !(protocol === "http:" && isLoopback(hostname))) {
    throw new Failure("failed-precondition", `${url} is neither https nor this machine`, { outcome: "not-executed" });
  }
  const body = json ? JSON.stringify(json) : form && new URLSearchParams(form).toString();
  const type = json ? "application/json" : "application/x-www-form-urlencoded";
  const response = await fetch(url, { method, redirect: "manual", body, headers: { ...(body !== undefined && { "Content-Type": type }), ...headers } });
  const answer = await response.text();
  let fields;
  try {
    fields = decode(Buffer.from(answer), 256 << 10, 32);
  } catch {
    throw new Failure("unavailable", `${url} answered ${response.status} and no JSON`);
  }
  return { status: response.status, headers: response.headers, fields };
}

const get = (url, headers) => request(url, { method: "GET", headers });

// findMesh reads the well-known document at an address; capability as in Exchange.
export async function findMesh(address, capability) {
  const { status, fields } = await get(`${address}/.well-known/cotal-mesh`, capability && { Authorization: `Bearer ${capability()}` });
  if (status !== 200) throw refusal(status, fields);
  if (fields.ver !== 1 || fields.userAuth?.provider !== "cotal") throw new Failure("unsupported-version", "not a space of people as of 2.4");
  return {
    space: name("space", fields.space), server: fields.server, tlsRequired: fields.tlsRequired, idp: fields.userAuth.idp,
    exchange: fields.userAuth.endpoints.url, sentinel: fields.sentinel,
  };
}

// --- Signing in ---

const grant = (word) => `urn:ietf:params:oauth:grant-type:${word}`;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// endpoints finds those of the identity provider that the document does not name.
async function endpoints(idp) {
  if (idp.shape === "better-auth") {
    const base = new URL(idp.issuer).pathname === "/" ? `${idp.issuer.replace(/\/$/, "")}/api/auth` : idp.issuer;
    return { deviceEndpoint: `${base}/device/code`, tokenEndpoint: `${base}/device/token`, jwtEndpoint: `${base}/token`, ...idp };
  }
  if (idp.deviceEndpoint && idp.tokenEndpoint) return idp;
  const { fields } = await get(`${idp.issuer.replace(/\/$/, "")}/.well-known/openid-configuration`);
  if (fields.issuer !== idp.issuer) throw new Failure("failed-precondition", `that is the document of ${fields.issuer}`);
  return { deviceEndpoint: fields.device_authorization_endpoint, tokenEndpoint: fields.token_endpoint, ...idp };
}

// signIn is the device flow (RFC 8628). show is called with the user code; it returns a session, whose proof() is one for the exchange.
export async function signIn(provider, show) {
  const idp = await endpoints(provider);
  const better = idp.shape === "better-auth";
  const as = (parameters) => (better ? { json: parameters } : { form: parameters });
  const scope = [...(better ? [] : ["openid", "offline_access"]), ...(idp.scopes ?? [])].join(" ");
  const code = await request(idp.deviceEndpoint, as({ client_id: idp.clientId, ...(scope && { scope }) }));
  if (code.status !== 200) throw new Failure("failed-precondition", `no code: ${JSON.stringify(code.fields)}`);
  await show(code.fields.user_code);
  for (let gap = code.fields.interval ?? 5; ; ) {
    await pause(gap * 1000);
    const parameters = { grant_type: grant("device_code"), device_code: code.fields.device_code, client_id: idp.clientId };
    const { status, fields } = await request(idp.tokenEndpoint, as(parameters));
    if (status === 200) return session(idp, fields);
    if (fields.error === "slow_down") gap += 5;
    else if (fields.error === "access_denied") throw new Failure("permission-denied", "the person refused");
    else if (fields.error !== "authorization_pending") throw new Failure("failed-precondition", JSON.stringify(fields));
  }
}

function session(idp, tokens) {
  if (idp.shape === "better-auth") {
    return {
      proof: async () => (await get(idp.jwtEndpoint, { Authorization: `Bearer ${tokens.access_token}` })).fields.token,
    };
  }
  return {
    proof: async () => tokens.id_token,
    // renew gets another proof of the same person.
    async renew() {
      const form = { grant_type: "refresh_token", refresh_token: tokens.refresh_token, client_id: idp.clientId };
      const { status, fields } = await request(idp.tokenEndpoint, { form });
      if (status !== 200) throw new Failure("unauthenticated", `no further proof: ${JSON.stringify(fields)}`);
      tokens = { ...tokens, ...fields };
    },
  };
}

// --- Keys ---

// Key is an Ed25519 key of this client's own [PPL-2].
export class Key {
  #pair = generateKeyPairSync("ed25519");

  get jwk() {
    return this.#pair.publicKey.export({ format: "jwk" });
  }

  sign(bytes) {
    return sign(null, Buffer.from(bytes), this.#pair.privateKey).toString("base64url");
  }

  // jws is a token signed with this key.
  jws(header, claims) {
    const signed = `${text(header)}.${text(claims)}`;
    return `${signed}.${this.sign(signed)}`;
  }

  // proof shows the holder of this key to the exchange for one request (RFC 9449); claims may replace some.
  proof(url, claims = {}) {
    const { kty, crv, x } = this.jwk;
    const all = { jti: randomUUID(), htm: "POST", htu: url, iat: Math.floor(Date.now() / 1000), ...claims };
    return this.jws({ typ: "dpop+jwt", alg: "EdDSA", jwk: { kty, crv, x } }, all);
  }

  // nonce signs what a broker sent, if it can be no token.
  nonce(nonce) {
    if (!nonce || Buffer.byteLength(nonce) > 64 || nonce.includes(".")) throw new Failure("failed-precondition", "the broker sent no nonce");
    return this.sign(nonce);
  }
}

// --- The exchange ---

const refusal = (status, { code = "internal", error, error_description: said, ...rest }) =>
  Object.assign(new Failure(code, said ?? error, { outcome: "not-executed" }), { status, ...(said && { oauth: error }), ...rest });

// Exchange asks the exchange at an address. A key is proved when there is one; capability returns that of the loopback address.
export class Exchange {
  constructor(address, { key, capability } = {}) {
    Object.assign(this, { url: `${address}/exchange`, key, capability });
  }

  // send sends a body as it is. proof replaces the proof of the key; null sends none.
  async send(body, proof = this.key?.proof(this.url), headers = {}) {
    const answer = await request(this.url, {
      ...body,
      headers: { ...(proof && { DPoP: proof }), ...(this.capability && { Authorization: `Bearer ${this.capability()}` }), ...headers },
    });
    if (answer.status !== 200) throw refusal(answer.status, answer.fields);
    return answer.fields;
  }

  // bearer asks for a bearer with the members of the JSON form.
  async bearer(members, proof) {
    return bearerOf(await this.send({ json: members }, proof), this.key);
  }

  // token asks in the form of RFC 8693; sentinel is that of the well-known document.
  async token({ subject, type = "urn:ietf:params:oauth:token-type:id_token", ...rest }, sentinel) {
    const answer = await this.send({
      form: { grant_type: grant("token-exchange"), subject_token: subject, subject_token_type: type, ...rest },
    });
    const { iss, sub: owner, iat, exp, scope, act } = read(answer.access_token.split(".")[1]);
    const fields = {
      token: answer.access_token, space: iss.slice("urn:cotal:auth:".length), owner, actor: act.actor, uid: act.uid, epoch: act.epoch, iat, exp, scope,
      profile: "agent", inbox: act.inbox, allowSubscribe: [], allowPublish: [], sentinel,
    };
    return { answer, bearer: bearerOf(fields, this.key) };
  }
}

// bearerOf is an answer of the exchange with who connections will be [PPL-1].
function bearerOf(answer, key) {
  const me = {
    space: name("space", answer.space), profile: answer.profile, owner: name("owner", answer.owner), actor: name("actor", answer.actor),
    uid: name("uid", answer.uid), inbox: answer.inbox, role: answer.role, subscribe: answer.allowSubscribe, publish: answer.allowPublish,
    commands: answer.scope.filter((entry) => entry.includes(".") && !entry.startsWith("role:")), expires: answer.exp * 1000,
  };
  return { answer, me, key };
}

// enter connects with a bearer. Options are those of open, and alter, which may change what is sent.
export function enter(server, { answer, me, key }, { alter = (fields) => fields, ...options } = {}) {
  const authenticate = (nonce) => alter({ jwt: answer.sentinel, auth_token: answer.token, ...(key && { sig: key.nonce(nonce) }) }, nonce);
  return open(server, me, authenticate, { ...options, reconnect: false });
}

// --- Staying ---

const passing = ["idp-unavailable", "unavailable", "busy", "too-many-requests", "grant-retiring", "deadline-exceeded"];

// Stay is a participant whose connections follow each other [PPL-4]. fetch gets a bearer; begin makes all subscriptions of a
// participant; tells is called with {renewed}, {ended}, {refused} or {gone}, which is the end.
export class Stay {
  constructor(server, fetch, { begin = async () => {}, tells = () => {}, ...options } = {}) {
    Object.assign(this, { server, fetch, begin, tells, options });
  }

  async start() {
    await this.#next();
    return this;
  }

  // #next connects with a new bearer and lets go of the connection before, if there is one.
  async #next() {
    const bearer = await this.fetch();
    const participant = await enter(this.server, bearer, this.options);
    const before = this.participant;
    if (before) Object.assign(participant, { seen: before.seen, last: before.last }); // what is heard on both is one message
    await this.begin(participant);
    Object.assign(this, { participant, bearer });
    const { iat, exp } = bearer.answer;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#again("renewed"), Math.max(0, (iat + ((exp - iat) * 3) / 4) * 1000 - Date.now()));
    participant.nc.closed().then(() => {
      if (this.participant !== participant || this.closing) return;
      this.tells({ ended: bearer.answer.exp });
      this.#again("back");
    });
    await before?.nc.drain().catch(() => {});
  }

  // #again asks the exchange until it says that no other try will help.
  async #again(word) {
    if (this.busy) return;
    this.busy = true;
    for (let attempt = 0; !this.closing; attempt++) {
      try {
        await this.#next();
        this.tells({ [word]: this.bearer.answer.exp });
        break;
      } catch (error) {
        this.tells({ refused: error.code ?? error.constructor.name });
        if (error instanceof Failure && !passing.includes(error.code)) {
          clearTimeout(this.timer);
          return this.tells({ gone: error.code, error });
        }
      }
      await pause(Math.min(30_000, 200 * 2 ** attempt) * (0.5 + Math.random()));
    }
    this.busy = false;
    if (this.participant.nc.isClosed() && !this.closing) this.#again("back");
  }

  async close() {
    this.closing = true;
    clearTimeout(this.timer);
    await this.participant.nc.close();
  }
}

// --- Taking bearers ---

// checkBearer is how a service of a space reads a bearer [PPL-5]; keys are those of GET /jwks. It returns the claims.
export function checkBearer(token, { space, keys, now = Date.now() / 1000 }) {
  const no = (why) => new Failure("unauthenticated", why);
  const parts = token.split(".");
  if (parts.length !== 3 || token.length > 8192) throw no("not a JWS");
  const [header, claims] = parts.slice(0, 2).map(read);
  if (header.alg !== "EdDSA" || Object.keys(header).some((k) => !["alg", "kid", "typ"].includes(k))) throw no("its header");
  const jwk = keys.find((k) => k.kid === header.kid);
  if (!jwk) throw no("its key");
  const signed = Buffer.from(parts.slice(0, 2).join("."));
  if (!verify(null, signed, createPublicKey({ key: jwk, format: "jwk" }), Buffer.from(parts[2], "base64url"))) throw no("its signature");
  if (claims.iss !== `urn:cotal:auth:${space}` || claims.aud !== space || claims.ver !== 1) throw no("its issuer, audience or version");
  if (![claims.iat, claims.nbf, claims.exp].every(Number.isInteger) || !claims.jti) throw no("it has no iat, nbf, exp or jti");
  if (claims.exp <= now || claims.nbf > now + 5 || claims.exp - claims.iat > 900) throw no("its time");
  if (claims.act?.owner !== claims.sub) throw no("its subject");
  return claims;
}
