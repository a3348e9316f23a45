// Package mint makes everything that trust consists of: the operator, the system account, the account of each space,
// and the credentials that people, agents and roles connect with. It is the only package that signs.
//
// An [Authority] works over a [secret.Store] in which it keeps the records of package trust and one seed per key:
//
//	a, err := mint.Init(ctx, store, nil)
//	account, err := a.AddSpace(ctx, "main", nil)
//	creds, err := a.User(ctx, mint.UserRequest{Space: "main", Profile: trust.Agent, Principal: ada, Publish: []string{"general"}})
//
// It promises:
//
//   - nothing is made from a record that is unreadable, partial or foreign; the error names the record;
//   - every change is one compare-and-swap that is tried again until it wins, so of two processes that revoke at the
//     same time neither loses an entry, and an account's version only grows;
//   - interrupted calls leave a state that the same call completes, and never a seed that signs for an account
//     that does not list it;
//   - every credential expires, and no more can be asked for than [trust.Identity] allows.
//
// It does not talk to a broker: what it returns must be pushed, and the brokers' answer is the truth. It does not ask
// whether a principal is granted anything; that is package auth.
//
// In a space that signs people in, [Authority.EnsureCallout] adds the account that brokers ask, and a [Responder] answers:
//
//	account, err := a.EnsureCallout(ctx, "main")
//	creds, err := a.CalloutUser(ctx, "main", 0)
//	answers, err := a.CalloutResponder(ctx, "main")
//	token, err := a.ConnectionJWT(ctx, "main", mint.ConnectionRequest{...})
//
// Records and seeds are read from the store for each use, so every process sees the changes of the others at once. The answers to a
// callout alone, which come in storms, use what was read up to 25 ms ago, and keep the keys that they sign and seal with
// in memory; no other seed is kept there. Seeds of accounts and of the system account are never stored at all: nothing
// signs with them, since brokers under this operator accept only scoped signing keys.
//
// An Authority is safe for concurrent use, also by several processes over one store.
package mint
