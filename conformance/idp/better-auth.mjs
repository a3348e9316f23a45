// Better Auth with its jwt, deviceAuthorization and bearer plugins, in memory. See child.mjs.
//
// Its shape is its own: no discovery, the device endpoints at /device/code and /device/token, a session token instead of an
// access token, no refresh token, and the signed token (EdDSA) from GET /token with the session as bearer.
import { randomBytes } from "node:crypto";
import { betterAuth } from "better-auth";
import { memoryAdapter } from "better-auth/adapters/memory";
import { toNodeHandler } from "better-auth/node";
import { bearer, createJwk, deviceAuthorization, jwt } from "better-auth/plugins";
import { run, settings } from "./child.mjs";

const jwtOptions = { jwt: { issuer: settings.issuer, audience: settings.audience, expirationTime: `${settings.tokenLife}s` } };

const auth = betterAuth({
  baseURL: settings.issuer,
  secret: randomBytes(32).toString("base64url"),
  database: memoryAdapter({ user: [], session: [], account: [], verification: [], jwks: [], deviceCode: [] }),
  emailAndPassword: { enabled: true },
  rateLimit: { enabled: false }, // every request comes from one address
  telemetry: { enabled: false },
  plugins: [
    jwt(jwtOptions),
    bearer(),
    deviceAuthorization({ expiresIn: "10m", interval: "1s", validateClient: (id) => id === settings.clientId }),
  ],
});

const { adapter } = await auth.$context;

// Keys, newest first. A key past its end signs no more and stays published for the product's grace period, 30 days.
const keys = () => adapter.findMany({ model: "jwks", sortBy: { field: "createdAt", direction: "desc" } });

await createJwk({ context: await auth.$context }, jwtOptions);

run(toNodeHandler(auth), {
  async rotate() {
    const now = new Date();
    for (const { id } of await keys()) {
      await adapter.update({ model: "jwks", where: [{ field: "id", value: id }], update: { expiresAt: now } });
    }
    await createJwk({ context: await auth.$context }, jwtOptions);
  },
  async drop() {
    for (const { id, expiresAt } of await keys()) {
      if (expiresAt) await adapter.delete({ model: "jwks", where: [{ field: "id", value: id }] });
    }
  },
});
