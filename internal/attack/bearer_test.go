package attack_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// rewrite takes a compact JWS apart, changes it, and puts it together with a signature: its own, or one of sign.
func rewrite(t testing.TB, token string, edit func(header, claims map[string]any), sign func(signed []byte) []byte) string {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("not a JWS of three parts")
	}
	var doc [2]map[string]any
	for i := range doc {
		d := json.NewDecoder(strings.NewReader(string(must[[]byte](t)(base64.RawURLEncoding.DecodeString(parts[i])))))
		d.UseNumber()
		if err := d.Decode(&doc[i]); err != nil {
			t.Fatal(err)
		}
	}
	edit(doc[0], doc[1])
	for i := range doc {
		parts[i] = base64.RawURLEncoding.EncodeToString(must[[]byte](t)(json.Marshal(doc[i])))
	}
	if sign != nil {
		parts[2] = base64.RawURLEncoding.EncodeToString(sign([]byte(parts[0] + "." + parts[1])))
	}
	return strings.Join(parts, ".")
}

// TestForgedBearers presents bearers that were changed, signed by others, made for another space or of another kind, each with the
// key that it names and the sentinel of the space: all of that is right but the bearer.
func TestForgedBearers(t *testing.T) {
	t.Parallel()
	w := newTown(t, &cotaltest.Options{Spaces: []string{"other"}})
	s := w.Space()
	w.grant(t, "ada", "ada", nil)
	b := w.signIn(t, "ada", "ada")
	creds := must[*trust.Credentials](t)(b.Credentials())
	token := b.Reveal()
	if err := w.present(t, creds, token); err != nil {
		t.Fatalf("the bearer as it is: %v", err)
	}
	_, foreign, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	by := func(key ed25519.PrivateKey) func([]byte) []byte {
		return func(b []byte) []byte { return ed25519.Sign(key, b) }
	}
	none := func(_, _ map[string]any) {}
	claim := func(name string, v any) func(_, claims map[string]any) {
		return func(_, claims map[string]any) { claims[name] = v }
	}
	head := func(name string, v any) func(header, _ map[string]any) {
		return func(header, _ map[string]any) { header[name] = v }
	}
	jwk := map[string]any{"kty": "OKP", "crv": "Ed25519", "x": base64.RawURLEncoding.EncodeToString(foreign.Public().(ed25519.PublicKey))}
	ours := must[*bearer.Keys](t)(bearer.EnsureKeys(t.Context(), w.Store(), "other"))
	elsewhere, _, err := bearer.NewIssuer("other", ours).Sign(t.Context(), bearer.Claims{
		Subject: b.Owner, Confirmation: must[ed25519.PublicKey](t)(bearer.PublicKey(creds.Identity().UserKey)),
		Act: bearer.Act{Owner: b.Owner, Actor: b.Actor, UID: b.UID, Epoch: 1, Inbox: string(b.UID)},
	}, bearer.MaxAgentLife)
	if err != nil {
		t.Fatal(err)
	}
	for name, forged := range map[string]string{
		"a longer life":              rewrite(t, token, claim("exp", 4102444800), nil),
		"a wider scope":              rewrite(t, token, claim("scope", []string{"admin", "spawn"}), nil),
		"another epoch":              edited(t, token, false, func(act map[string]any) { act["epoch"] = 99 }),
		"a view":                     edited(t, token, false, func(act map[string]any) { act["view"] = "admin" }),
		"another owner":              edited(t, token, true, func(act map[string]any) { act["owner"] = "u_aaaaaaaaaaaaaaaaaaaaaaaaaa" }),
		"no key named":               rewrite(t, token, func(_, claims map[string]any) { delete(claims, "cnf") }, nil),
		"signed by a stranger":       rewrite(t, token, none, by(foreign)),
		"a key of its own in it":     rewrite(t, token, head("jwk", jwk), by(foreign)),
		"a key of its own as kid":    rewrite(t, token, head("kid", "mine"), by(foreign)),
		"no algorithm":               rewrite(t, token, head("alg", "none"), func([]byte) []byte { return nil }),
		"a keyed hash":               rewrite(t, token, head("alg", "HS256"), by(foreign)),
		"of another space":           elsewhere,
		"cut short":                  token[:len(token)-10],
		"with a tail":                token + ".x",
		"as json":                    `{"payload":"x","signatures":[]}`,
		"nothing but dots":           "..",
		"twice":                      token + token,
		"too long":                   token + strings.Repeat("A", bearer.MaxToken),
		"the sentinel":               creds.JWT(),
		"a proof of the key":         must[string](t)(bearer.Prove(t.Context(), newKey(t), "POST", "http://127.0.0.1/exchange", b.IssuedAt)),
		"the word of an idp":         "proof ada",
		"the name of the holder":     b.Owner + "." + b.Actor,
		"a password":                 "password",
		"the capability of the desk": w.desk(t, s).Cap(),
	} {
		if err := w.present(t, creds, forged); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
	if err := w.present(t, creds, token); err != nil {
		t.Errorf("the bearer as it is, after all of that: %v", err)
	}
}

// TestSomebodyElsesActor: the name of an actor is worth nothing without its owner. Two people have an actor of the same name, and
// neither reaches what the other has.
func TestSomebodyElsesActor(t *testing.T) {
	t.Parallel()
	w := newTown(t, nil)
	ada := w.grant(t, "ada", "desk", nil)
	x := w.exchange(t, w.Space())
	if _, err := x.Human(t.Context(), ask("bob", "desk")); trust.ReasonOf(err) != trust.ReasonNotGranted {
		t.Errorf("bob as the actor of ada: %v, want not-granted", err)
	}
	bob := w.grant(t, "bob", "desk", nil)
	if ada.Owner == bob.Owner || ada.UID == bob.UID {
		t.Fatalf("two people share %s or %s", ada.Owner, ada.UID)
	}
	in := intrude(t, w.Mesh, w.credentials(t, "bob", "desk"))
	s := w.Space()
	own := must[string](t)(wire.ChannelSubject(s, bob.Principal(), "general"))
	if err := in.nc.Publish(own, nil); err != nil {
		t.Fatal(err)
	}
	in.barrier(t)
	if in.refused(own) {
		t.Error("bob cannot post as himself, so nothing is proved")
	}
	in.mustNotPublish(t, must[string](t)(wire.ChannelSubject(s, ada.Principal(), "general")), nil)
	in.mustNotPublish(t, must[string](t)(wire.DirectSubject(s, bob.Principal(), ada.Principal())), nil)
	in.mustNotPublish(t, must[string](t)(wire.PresenceSubject(s, ada.Principal())), nil)
	in.mustNotSubscribe(t, wire.InboxPrefix(string(ada.UID))+".>")
	in.mustNotSubscribe(t, must[string](t)(wire.DirectFilter(s, ada.Principal())))

	// A person's request has no place for an owner, and a grant for an owner that is none is not written.
	for _, owner := range []string{"u_", "u_other", "u_" + strings.Repeat("A", 26), "u_" + strings.Repeat("a", 25) + "!", "u_*", "*", ">", "ada.desk"} {
		req := requestOf(w, owner)
		if _, err := w.authority().Grant(t.Context(), req); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("a grant for owner %q: %v, want bad-request", owner, err)
		}
	}
	// Names that a provider may give to people, which look like those of others, are owners of their own.
	seen := map[string]string{}
	for _, sub := range []string{"ada", "Ada", "ada ", "ada.desk", "ada\",\"bob", "*", ">", "u_", "local", ada.Owner, "ａda", "ada\u200b"} {
		owner := w.owner(t, s, sub)
		if other, ok := seen[owner]; ok {
			t.Errorf("%q and %q are both %s", sub, other, owner)
		}
		if seen[owner] = sub; sub != "ada" && owner == ada.Owner || owner == wire.LocalOwner {
			t.Errorf("%q is %s", sub, owner)
		}
	}
}

// TestWithoutAKey: a bearer that names no key connects whoever holds it, as documented, but only where the space takes it.
func TestWithoutAKey(t *testing.T) {
	t.Parallel()
	for name, require := range map[string]bool{"taken": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := &cotaltest.Options{}
			opts.People.RequireKeyProof = require
			w := newTown(t, opts)
			g := w.grant(t, "ada", "ada", nil)
			keys := must[*bearer.Keys](t)(bearer.EnsureKeys(t.Context(), w.Store(), w.Space()))
			token, _, err := bearer.NewIssuer(w.Space(), keys).Sign(t.Context(), bearer.Claims{
				Subject: g.Owner, Act: bearer.Act{Owner: g.Owner, Actor: g.Actor, UID: g.UID, Epoch: g.Epoch, Inbox: string(g.UID)},
			}, bearer.MaxAgentLife)
			if err != nil {
				t.Fatal(err)
			}
			bound := must[login.Bearer](t)(w.exchange(t, w.Space()).Human(t.Context(), ask("ada", "ada")))
			creds := must[*trust.Credentials](t)(bound.Credentials())
			if err := w.present(t, creds, token); (err != nil) != require {
				t.Errorf("a bearer without a key: %v, want refused %t", err, require)
			}
			if err := w.present(t, creds, bound.Reveal()); err != nil {
				t.Errorf("one with its key: %v", err)
			}
			thief := stolen(t, creds.JWT(), bound.Reveal(), bound.Identity())
			if err := w.knock(t, thief); !errors.Is(err, wire.ErrUnauthenticated) {
				t.Errorf("one with another key: %v, want a refusal", err)
			}
		})
	}
}
