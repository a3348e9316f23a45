package broker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// systemUser is a credential of the system account, with no limit but the publish subjects given.
func (c *chain) systemUser(t testing.TB, ttl time.Duration, publish ...string) *trust.Credentials {
	t.Helper()
	return c.systemCredential(t, ttl, func(uc *jwt.UserClaims) { uc.Pub.Allow = publish })
}

func (c *chain) systemCredential(t testing.TB, ttl time.Duration, adjust func(*jwt.UserClaims)) *trust.Credentials {
	t.Helper()
	kp := key(t, nkeys.PrefixByteUser)
	id := trust.Identity{Profile: trust.SystemControl.Profile(), Lifecycle: wire.Lifecycle{Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "control"}, UID: wire.NewUID()}}
	id.Inbox = string(id.UID)
	claim := jwt.NewUserClaims(public(t, kp))
	claim.Tags = id.Tags()
	claim.Expires = time.Now().Add(ttl).Unix()
	adjust(claim)
	creds, err := trust.NewCredentials(encode(t, claim, c.system), must(kp.Seed())(t))
	if err != nil {
		t.Fatalf("system credential: %v", err)
	}
	return creds
}

func control(t testing.TB, s *broker.Server, source broker.Source) *broker.Control {
	t.Helper()
	ctl, err := s.Control(context.Background(), source, &broker.DialOptions{Timeout: time.Minute})
	if err != nil {
		t.Fatalf("Control: %v", err)
	}
	t.Cleanup(func() { _ = ctl.Close() })
	return ctl
}

// TestControl pushes claims that the broker would accept, keep, and then refuse everybody for.
func TestControl(t *testing.T) {
	c, other := newChain(t), newChain(t)
	acct := c.account(t)
	s := start(t, c.trust, options(t))
	ctl := control(t, s, broker.Static(c.systemUser(t, time.Hour)))
	good := c.trust.Accounts[public(t, acct)]
	for _, tc := range []struct {
		name, account, token string
		want                 wire.Code
	}{
		{"foreign_operator", public(t, acct), other.claim(t, acct), wire.CodeFailedPrecondition},
		{"self_signed", public(t, acct), encode(t, jwt.NewAccountClaims(public(t, acct)), acct), wire.CodeFailedPrecondition},
		{"torn", public(t, acct), good[:len(good)-10], wire.CodeFailedPrecondition},
		{"another_account", public(t, key(t, nkeys.PrefixByteAccount)), good, wire.CodeFailedPrecondition},
		{"no_account", "nobody", good, wire.CodeBadRequest},
		{"expired", public(t, acct), c.claim(t, acct, func(ac *jwt.AccountClaims) { ac.Expires = 1 }), wire.CodeExpired},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := ctl.PutAccount(t.Context(), tc.account, tc.token); wire.CodeOf(err) != tc.want {
				t.Errorf("PutAccount = %v (code %q), want code %q", err, wire.CodeOf(err), tc.want)
			}
		})
	}
	if got, err := ctl.Lookup(t.Context(), public(t, acct)); err != nil || got != good {
		t.Errorf("the broker holds another claim than before (%v)", err)
	}
}

func TestPromisesMustFit(t *testing.T) {
	c := newChain(t)
	disk := func(n int64) func(*jwt.AccountClaims) {
		return func(ac *jwt.AccountClaims) { ac.Limits.DiskStorage = n }
	}
	first := c.account(t, disk(64<<20))
	opts := options(t)
	opts.MaxStore = 100 << 20
	s := start(t, c.trust, opts)
	ctl := control(t, s, broker.Static(c.systemUser(t, time.Hour)))

	second := key(t, nkeys.PrefixByteAccount)
	err := ctl.PutAccount(t.Context(), public(t, second), c.claim(t, second, disk(64<<20)))
	refused, ok := errors.AsType[*wire.Error](err)
	if !ok || refused.Code != wire.CodeResourceExhausted || refused.Details["used"] != int64(128<<20) || refused.Details["allowed"] != int64(100<<20) {
		t.Fatalf("PutAccount over the cap = %v, want resource-exhausted with 128 of 100 MiB", err)
	}
	if _, err := ctl.Lookup(t.Context(), public(t, second)); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("Lookup of the refused account = %v, want not-found", err)
	}
	if err := ctl.PutAccount(t.Context(), public(t, second), c.claim(t, second, disk(36<<20))); err != nil {
		t.Fatalf("PutAccount within the cap: %v", err)
	}
	store(t, connect(t, s, user(t, second, 0)), "B", "b")
	if err := ctl.PutAccount(t.Context(), public(t, first), c.claim(t, first, disk(65<<20))); !errors.Is(err, wire.ErrExhausted) {
		t.Errorf("raising a limit over the cap = %v, want resource-exhausted", err)
	}
	if err := ctl.PutAccount(t.Context(), public(t, first), c.claim(t, first, disk(10<<20))); err != nil {
		t.Errorf("lowering a limit: %v", err)
	}

	c.trust.Accounts[public(t, second)] = c.claim(t, second, disk(64<<20))
	if err := s.Restart(t.Context(), c.trust); !errors.Is(err, wire.ErrExhausted) {
		t.Errorf("Restart with promises over the cap = %v, want resource-exhausted", err)
	}
	delete(c.trust.Accounts, public(t, first))
	if err := s.Restart(t.Context(), c.trust); err != nil {
		t.Errorf("Restart within the cap: %v", err)
	}
}

func TestControlNamesWhatIsMissing(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		c := newChain(t)
		acct := c.account(t)
		s := start(t, c.trust, options(t))
		ctl := control(t, s, broker.Static(c.systemUser(t, time.Hour, "$SYS.REQ.SERVER.PING")))
		began := time.Now()
		err := ctl.PutAccount(t.Context(), public(t, acct), c.claim(t, acct))
		if !errors.Is(err, wire.ErrPermissionDenied) {
			t.Errorf("PutAccount without the permission = %v, want permission-denied", err)
		}
		if _, err := ctl.Connections(t.Context(), public(t, acct)); !errors.Is(err, wire.ErrPermissionDenied) {
			t.Errorf("Connections without the permission = %v, want permission-denied", err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("two refusals took %v, want them at once", took)
		}
		if _, err := ctl.Lookup(t.Context(), "x"); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("Lookup of no account = %v, want bad-request", err)
		}
		if _, err := ctl.EvictTagged(t.Context(), public(t, acct)); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("EvictTagged without tags = %v, want bad-request", err)
		}
		if _, err := ctl.EvictKeys(t.Context(), public(t, acct)); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("EvictKeys without keys = %v, want bad-request", err)
		}
		if err := ctl.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := ctl.Ping(t.Context()); !errors.Is(err, wire.ErrUnavailable) {
			t.Errorf("Ping after Close = %v, want unavailable", err)
		}
		_ = ctl.Close()
	})
}

func TestControlNamesAnInboxItMayNotRead(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		c := newChain(t)
		s := start(t, c.trust, options(t))
		deaf := func(context.Context) (*trust.Credentials, error) {
			return c.systemCredential(t, time.Hour, func(uc *jwt.UserClaims) { uc.Sub.Deny = jwt.StringList{">"} }), nil
		}
		began := time.Now()
		if _, err := s.Control(t.Context(), deaf, nil); !errors.Is(err, wire.ErrPermissionDenied) {
			t.Errorf("Control that may not subscribe = %v, want permission-denied", err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the refusal took %v, want it at once", took)
		}
	})
}

func TestDialRefuses(t *testing.T) {
	c := newChain(t)
	acct := c.account(t)
	opts := listening(t)
	s := start(t, c.trust, opts)
	system := broker.Static(c.systemUser(t, time.Hour))
	foreign := newChain(t)
	member := *c
	member.system = acct // a member of a space is not the system
	for _, tc := range []struct {
		name, server string
		source       broker.Source
		want         wire.Code
	}{
		{"no_scheme", "localhost:4222", system, wire.CodeBadRequest},
		{"plaintext_far", "nats://mesh.example:4222", system, wire.CodeFailedPrecondition},
		{"nobody_there", "nats://127.0.0.1:1", system, wire.CodeUnavailable},
		{"foreign_credential", s.ClientURL(), broker.Static(foreign.systemUser(t, time.Hour)), wire.CodeUnauthenticated},
		{"no_credential", s.ClientURL(), broker.Static(nil), wire.CodeUnauthenticated},
		{"not_the_system", s.ClientURL(), broker.Static(member.systemUser(t, time.Hour)), wire.CodeUnavailable},
		{"no_tls_there", "tls" + s.ClientURL()[len("nats"):], system, wire.CodeUnavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctl, err := broker.Dial(t.Context(), tc.server, tc.source, nil)
			if err == nil {
				_ = ctl.Close()
			}
			if wire.CodeOf(err) != tc.want {
				t.Errorf("Dial(%q) = %v (code %q), want code %q", tc.server, err, wire.CodeOf(err), tc.want)
			}
		})
	}
}

// TestControlFollowsABrokerThatMoves: it works on when the broker is started again on another port.
func TestControlFollowsABrokerThatMoves(t *testing.T) {
	c := newChain(t)
	acct := c.account(t)
	opts := listening(t)
	s := start(t, c.trust, opts)
	var at atomic.Pointer[string]
	move := func(url string) { at.Store(&url) }
	move(s.ClientURL())
	ctl, err := broker.Dial(t.Context(), s.ClientURL(), broker.Static(c.systemUser(t, time.Hour)),
		&broker.DialOptions{Locate: func() string { return *at.Load() }, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ctl.Close() })
	for range 3 { // an outage leaves nothing behind that hinders the next
		s.Shutdown()
		s = start(t, c.trust, opts)
		move(s.ClientURL())
		if _, err := ctl.Lookup(t.Context(), public(t, acct)); err != nil {
			t.Fatalf("Lookup: %v", err)
		}
	}
}

func TestControlOutlivesItsCredential(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		c := newChain(t)
		acct := c.account(t)
		s := start(t, c.trust, options(t))
		var asked atomic.Int64
		ctl := control(t, s, func(context.Context) (*trust.Credentials, error) {
			asked.Add(1)
			return c.systemUser(t, time.Hour), nil
		})
		for range 24 * 6 {
			time.Sleep(10 * time.Minute)
			if _, err := ctl.Lookup(t.Context(), public(t, acct)); err != nil {
				t.Fatalf("Lookup: %v", err)
			}
		}
		synctest.Wait()
		if got, want := asked.Load(), int64(24*60/45+1); got != want {
			t.Errorf("the source was asked %d times in 24 hours, want %d: once, and every 45 minutes", got, want)
		}
		stats, err := s.Stats()
		if err != nil || stats.Connections != 1 {
			t.Errorf("connections after 24 hours = %d, %v; want 1", stats.Connections, err)
		}
	})
}

func TestControlSaysThatItWasNotRenewed(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		c := newChain(t)
		acct := c.account(t)
		s := start(t, c.trust, options(t))
		locked := errors.New("the store is locked")
		var broken atomic.Bool
		ctl := control(t, s, func(context.Context) (*trust.Credentials, error) {
			if broken.Load() {
				return nil, locked
			}
			return c.systemUser(t, time.Hour), nil
		})
		broken.Store(true)
		time.Sleep(59 * time.Minute)
		if _, err := ctl.Lookup(t.Context(), public(t, acct)); err != nil {
			t.Errorf("Lookup before the expiry: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if _, err := ctl.Lookup(t.Context(), public(t, acct)); !errors.Is(err, wire.ErrExpired) || !errors.Is(err, locked) {
			t.Errorf("Lookup after the expiry = %v, want expired, because of %v", err, locked)
		}
		broken.Store(false)
		time.Sleep(time.Minute)
		if _, err := ctl.Lookup(t.Context(), public(t, acct)); err != nil {
			t.Errorf("Lookup after the source recovered: %v", err)
		}
	})
}

// TestListingMissesNobody lists several pages while connections in front of and between those that stay are closed.
func TestListingMissesNobody(t *testing.T) {
	const stable, rounds, leaving = 400, 6, 30
	c := newChain(t)
	acct := c.account(t)
	s := start(t, c.trust, options(t))
	ctl := control(t, s, broker.Static(c.systemUser(t, time.Hour)))
	who := user(t, acct, 0)

	var restless []*nats.Conn
	for i := range stable {
		if i%2 == 0 {
			restless = append(restless, connect(t, s, who, nats.Name("restless")))
		}
		connect(t, s, who, nats.Name(fmt.Sprintf("stable %d", i)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	complete := 0
	for range rounds {
		var churn sync.WaitGroup
		churn.Go(func() {
			for _, nc := range restless[:leaving] {
				nc.Close()
			}
		})
		all, err := ctl.Connections(ctx, public(t, acct))
		churn.Wait()
		restless = restless[leaving:]
		if errors.Is(err, broker.ErrIncomplete) {
			if all != nil {
				t.Errorf("an incomplete listing returned %d connections", len(all))
			}
			continue
		}
		if err != nil {
			t.Fatalf("Connections: %v", err)
		}
		complete++
		seen := map[string]int{}
		for _, conn := range all {
			seen[conn.Name]++
		}
		for i := range stable {
			if name := fmt.Sprintf("stable %d", i); seen[name] != 1 {
				t.Fatalf("%q is listed %d times among %d", name, seen[name], len(all))
			}
		}
	}
	if complete == 0 {
		t.Errorf("none of %d listings was complete", rounds)
	}
	t.Logf("%d of %d listings under churn were complete", complete, rounds)
}

func TestListingTellsWhoIsConnected(t *testing.T) {
	c := newChain(t)
	acct := c.account(t)
	s := start(t, c.trust, options(t))
	ctl := control(t, s, broker.Static(c.systemUser(t, time.Hour)))

	kp := key(t, nkeys.PrefixByteUser)
	claim := jwt.NewUserClaims(public(t, kp))
	claim.Name, claim.Expires = "ada", time.Now().Add(time.Hour).Unix()
	claim.Tags = append(claim.Tags, "owner:local", "actor:Ada")
	token := encode(t, claim, acct)
	nc := connect(t, s, nats.UserJWT(func() (string, error) { return token, nil }, kp.Sign), nats.Name("first"))
	connect(t, s, user(t, acct, 0), nats.Name("second"))
	for _, subject := range []string{"a.b", "c.>"} {
		if _, err := nc.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}

	all, err := ctl.Connections(t.Context(), public(t, acct), broker.WithSubscriptions(), broker.OfUser(public(t, kp)))
	if err != nil || len(all) != 1 {
		t.Fatalf("Connections of one user = %+v, %v; want one", all, err)
	}
	got := all[0]
	slices.Sort(got.Subscriptions)
	if got.UserKey != public(t, kp) || got.User != "ada" || got.Name != "first" || got.Account != public(t, acct) ||
		!got.Expires.Equal(time.Unix(claim.Expires, 0)) || got.Subs != 2 || !slices.Equal(got.Subscriptions, []string{"a.b", "c.>"}) {
		t.Errorf("connection = %+v", got)
	}
	if !got.HasTags("actor:Ada", "owner:local") || got.HasTags("actor:ada") || got.HasTags("owner:local", "actor:bob") {
		t.Errorf("tags %q: want exactly the minted spelling to match", got.Tags)
	}
	if all, err = ctl.Connections(t.Context(), public(t, acct)); err != nil || len(all) != 2 {
		t.Errorf("Connections of the account = %d, %v; want 2", len(all), err)
	}
	if err := ctl.Kick(t.Context(), broker.Connection{ServerID: got.ServerID, CID: 1 << 40}); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("Kick of nobody = %v, want not-found", err)
	}
}
