// panva's oidc-provider with the device flow, ES256 ID tokens and rotating refresh tokens, in memory. See child.mjs.
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { Provider } from "oidc-provider";
import { run, settings } from "./child.mjs";

// What the product stores lives here, so that it survives a change of keys, for which the product is built anew.
const rows = new Map();
const grantable = new Set(["AccessToken", "AuthorizationCode", "RefreshToken", "DeviceCode"]);

class Memory {
  constructor(model) {
    this.model = model;
  }

  #find(fits) {
    for (const row of rows.values()) {
      if (row.model === this.model && (row.ends === undefined || row.ends > Date.now()) && fits(row)) return { ...row.payload };
    }
  }

  async upsert(id, payload, expiresIn) {
    const ends = expiresIn === undefined ? undefined : Date.now() + 1000 * expiresIn;
    rows.set(`${this.model}:${id}`, { model: this.model, id, payload, ends });
  }
  async find(id) {
    return this.#find((row) => row.id === id);
  }
  async findByUserCode(userCode) {
    return this.#find((row) => row.payload.userCode === userCode);
  }
  async findByUid(uid) {
    return this.#find((row) => row.payload.uid === uid);
  }
  async consume(id) {
    rows.get(`${this.model}:${id}`).payload.consumed = Math.floor(Date.now() / 1000);
  }
  async destroy(id) {
    rows.delete(`${this.model}:${id}`);
  }
  async revokeByGrantId(grantId) {
    for (const [key, row] of rows) {
      if (grantable.has(row.model) && row.payload.grantId === grantId) rows.delete(key);
    }
  }
}

const newKey = () => ({ ...generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({ format: "jwk" }), alg: "ES256", use: "sig" });

let keys = [newKey()]; // the first signs
const cookieKeys = [randomBytes(32).toString("base64url")];

function build() {
  const provider = new Provider(settings.issuer, {
    adapter: Memory,
    jwks: { keys },
    cookies: { keys: cookieKeys },
    clients: [{
      client_id: settings.clientId,
      application_type: "native",
      token_endpoint_auth_method: "none",
      grant_types: ["urn:ietf:params:oauth:grant-type:device_code", "refresh_token"],
      response_types: [],
      redirect_uris: [],
      id_token_signed_response_alg: "ES256",
    }],
    features: { deviceFlow: { enabled: true }, devInteractions: { enabled: true }, revocation: { enabled: true } },
    findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    rotateRefreshToken: true,
    scopes: ["openid", "offline_access"],
    ttl: {
      AccessToken: settings.tokenLife, IdToken: settings.tokenLife,
      DeviceCode: 600, Interaction: 600, RefreshToken: 86400, Grant: 86400, Session: 86400,
    },
  });
  return provider.callback();
}

let answer = build();

run((req, res) => answer(req, res), {
  rotate() {
    keys = [newKey(), ...keys];
    answer = build();
  },
  drop() {
    keys = keys.slice(0, 1);
    answer = build();
  },
});
