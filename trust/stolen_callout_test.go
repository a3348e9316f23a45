package trust_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestStolenCalloutKeysAreRefused plays a thief of a signing key of the callout account, in a space whose responder lets
// nobody in. What the thief signs is decided by that responder, or refused. The broker lets whoever shows a JWT of the callout
// account that it does not accept wait as long as one about whom nobody answers; but it asks nobody.
func TestStolenCalloutKeysAreRefused(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		r := newPeopleRealm(t)
		var asked sync.Map // by JWT
		r.answers(t, space, func(q question) []byte {
			asked.Store(q.asked.ConnectOptions.JWT, true)
			return q.answer(t, "", func(c *jwt.AuthorizationResponseClaims) { c.Error = "nobody" })
		})
		rec, err := r.mint.Account(t.Context(), space)
		if err != nil {
			t.Fatal(err)
		}
		other, err := r.mint.Account(t.Context(), otherSpace)
		if err != nil {
			t.Fatal(err)
		}
		responder, sentinel, agent := trust.CalloutSigningKey(space, trust.CalloutResponder), trust.CalloutSigningKey(space, trust.CalloutSentinel), trust.SigningKey(space, trust.Agent)
		for _, c := range []struct {
			name, key string
			edit      func(c *jwt.UserClaims)
			asks      bool // the responder is asked, and says no
		}{
			{"a user of the responder key", responder, func(*jwt.UserClaims) {}, true},
			{"a user of the sentinel key", sentinel, func(*jwt.UserClaims) {}, true},
			{"claims to be the responder", sentinel, func(c *jwt.UserClaims) { c.Name, c.Tags = "callout", jwt.TagList{"profile:callout"} }, true},
			{"the responder without its seed", responder, func(c *jwt.UserClaims) { c.Subject = rec.Callout.User }, false},
			{"a bearer of the responder key", responder, func(c *jwt.UserClaims) { c.Subject, c.BearerToken = rec.Callout.User, true }, false},
			{"own permissions", responder, func(c *jwt.UserClaims) { c.Sub.Allow = jwt.StringList{">"} }, false},
			{"own permissions of the sentinel key", sentinel, func(c *jwt.UserClaims) { c.Pub.Allow = jwt.StringList{">"} }, false},
			{"own responses", sentinel, func(c *jwt.UserClaims) { c.Resp = &jwt.ResponsePermission{MaxMsgs: -1} }, false},
			{"own limits", sentinel, func(c *jwt.UserClaims) { c.Limits.Payload = 1 << 30 }, false},
			{"unscoped", responder, func(c *jwt.UserClaims) { c.SetScoped(false) }, false},
			{"the account of the space", responder, func(c *jwt.UserClaims) { c.IssuerAccount = rec.Public }, false},
			{"the account of the space, by the sentinel key", sentinel, func(c *jwt.UserClaims) { c.IssuerAccount = rec.Public }, false},
			{"the callout account of another space", responder, func(c *jwt.UserClaims) { c.IssuerAccount = other.Callout.Public }, false},
			{"the system account", responder, func(c *jwt.UserClaims) { c.IssuerAccount = r.mint.SystemPublic() }, false},
			{"the callout account, by an agent key", agent, func(*jwt.UserClaims) {}, false},
			{"expired", responder, func(c *jwt.UserClaims) { c.Expires = time.Now().Add(-time.Minute).Unix() }, false},
		} {
			f := r.forgeCallout(t, c.key, rec.Callout.Public, c.edit)
			nc, _, err := r.connect(f)
			if err == nil {
				nc.Close()
				t.Errorf("%s: connected, want a refusal", c.name)
			}
			if _, got := asked.Load(f.JWT()); got != c.asks {
				t.Errorf("%s: the responder was asked: %v, want %v (%v)", c.name, got, c.asks, err)
			}
		}
	})
}

// TestStolenSentinelKeyPermitsNothing: the one forgery about which nobody is asked is of the responder's key. It comes in, since
// a sentinel needs no signature, and can do nothing.
func TestStolenSentinelKeyPermitsNothing(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		r := newPeopleRealm(t)
		rec, err := r.mint.Account(t.Context(), space)
		if err != nil {
			t.Fatal(err)
		}
		f := r.forgeCallout(t, trust.CalloutSigningKey(space, trust.CalloutSentinel), rec.Callout.Public, func(c *jwt.UserClaims) {
			c.Subject = rec.Callout.User
			c.Tags = trustTags("*", "*", "*")
		})
		for p := range r.try(t, f, append(universe(), thiefProbes()...)) {
			t.Errorf("a thief of the sentinel key may %s %s", p.verb, p.subject)
		}
		nc, errs, err := r.connect(f)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if _, err := nc.QueueSubscribeSync(wire.CalloutSubject, wire.CalloutQueue); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := <-errs; !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("a thief of the sentinel key hears the questions: %v", err)
		}
	})
}

// TestSeedsMintNoUnscopedUser: of all seeds that a space of people has, none makes a user with permissions of its own, in any account.
func TestSeedsMintNoUnscopedUser(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		r := newPeopleRealm(t)
		rec, err := r.mint.Account(t.Context(), space)
		if err != nil {
			t.Fatal(err)
		}
		keys, err := r.store.List(t.Context(), "auth/")
		if err != nil {
			t.Fatal(err)
		}
		tried := 0
		var wg sync.WaitGroup
		for _, key := range keys {
			if !strings.HasSuffix(key, ".nk") {
				continue
			}
			seed, err := r.store.Get(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			pair, err := nkeys.FromSeed(seed)
			if err != nil {
				t.Fatal(err)
			}
			public, err := pair.PublicKey()
			if err != nil {
				t.Fatal(err)
			}
			for _, account := range append(rec.Accounts(), trust.SignedAccount{Public: r.mint.SystemPublic()}) {
				if public == account.Public {
					t.Errorf("%s is the seed of an account itself", key)
				}
				f, signed := unscoped(t, pair, account.Public)
				if !signed {
					continue
				}
				tried++
				wg.Go(func() {
					if nc, _, err := r.connect(f); err == nil {
						nc.Close()
						t.Errorf("a user with its own permissions, signed by %s, connected", key)
					}
				})
			}
		}
		wg.Wait()
		if tried < 20 {
			t.Errorf("%d forgeries, too few to prove anything", tried)
		}
	})
}

// forgeCallout signs claims of the callout account with a stolen key, whatever they say.
func (r *realm) forgeCallout(t testing.TB, key, account string, edit func(c *jwt.UserClaims)) forged {
	t.Helper()
	user, err := signer.Generate(signer.User)
	if err != nil {
		t.Fatal(err)
	}
	claims := jwt.NewUserClaims(user.Public())
	claims.SetScoped(true)
	claims.IssuerAccount = account
	claims.Expires = time.Now().Add(time.Hour).Unix()
	edit(claims)
	return forged{r.signWith(t, key, claims), user}
}
