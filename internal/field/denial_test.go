package field_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// paper is a log that is read afterwards.
type paper struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (p *paper) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.buf.Write(b)
}

func (p *paper) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.buf.String()
}

func (p *paper) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(p, &slog.HandlerOptions{Level: slog.LevelDebug - 4}))
}

// control looks at the broker as its operator does.
func control(t testing.TB, m *cotaltest.Mesh, ttl time.Duration) *broker.Control {
	t.Helper()
	a := m.Node().Authority().Mint()
	ctl := must(broker.Dial(t.Context(), "", func(ctx context.Context) (*trust.Credentials, error) {
		return a.SystemUser(ctx, mint.SystemRequest{Kind: trust.SystemControl, TTL: ttl})
	}, &broker.DialOptions{InProcess: m.InProcess()}))(t)
	t.Cleanup(func() { _ = ctl.Close() })
	return ctl
}

// N1: somebody is suspended while connected. The broker says no more than that; the client learns the stable reason from the exchange;
// the log has it, and neither holds a token.
func TestN1TheReasonIsStableAndSecretsAreNot(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		var log paper
		v := newVillage(t, &cotaltest.Options{Logger: log.logger()})
		g := v.grant(t, "ada", "ada")
		src := v.person(t, "ada", "ada")
		b := must(src.Bearer(t.Context()))(t)
		var events journal[endpoint.Event]
		v.join(t, src, events.add)
		must(v.authority().Revoke(t.Context(), v.space, g.Principal()))(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		reasons := map[trust.Reason]int{}
		for _, e := range events.take() {
			if failed, is := e.(endpoint.EventRenewalFailed); is {
				reasons[trust.ReasonOf(failed.Err)]++
				if strings.Contains(failed.Err.Error(), b.Reveal()) {
					t.Errorf("the client is told a token: %v", failed.Err)
				}
			}
			if refused, is := e.(endpoint.EventRefused); is && !errors.Is(refused.Err, nats.ErrAuthorization) {
				t.Errorf("the broker says %v, want no more than a violation", refused.Err)
			}
		}
		if len(reasons) != 1 || reasons[trust.ReasonRevoked] == 0 {
			t.Errorf("the client learns %v, want grant-revoked", reasons)
		}
		if said := log.text(); !strings.Contains(said, string(trust.ReasonRevoked)) || strings.Contains(said, b.Reveal()) {
			t.Errorf("the log has the reason: %t, the token: %t", strings.Contains(said, string(trust.ReasonRevoked)), strings.Contains(said, b.Reveal()))
		}
	})
}

// N2: ten connections are denied. The audit stream tells the true reason of each, and nothing anywhere says that it was a limit.
func TestN2DenialsAreNoLimits(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		var log paper
		v := newVillage(t, &cotaltest.Options{Logger: log.logger()})
		g := v.grant(t, "ada", "ada")
		creds := must(v.person(t, "ada", "ada").Credentials(t.Context()))(t)
		must(v.authority().Revoke(t.Context(), v.space, g.Principal()))(t)
		for range 10 {
			if err := v.knock(t, creds); !errors.Is(err, wire.ErrUnauthenticated) {
				t.Fatalf("denied with %v, want unauthenticated", err)
			}
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		all, _, err := v.authority().Audit(t.Context(), v.space, space.AuditQuery{Action: space.ActionConnect, Principal: g.Principal()})
		if err != nil {
			t.Fatal(err)
		}
		denied := uint64(0)
		for _, e := range all {
			if e.Outcome != space.OutcomeDenied || e.Reason != trust.ReasonRevoked {
				t.Errorf("audit record %+v, want denied, grant-revoked", e.AuditEvent)
			}
			denied += max(e.Count, 1)
		}
		if denied != 10 {
			t.Errorf("the audit stream tells of %d denials, want 10", denied)
		}
		if said := strings.ToLower(log.text()); strings.Contains(said, "maximum") || strings.Contains(said, "exceeded") {
			t.Errorf("the broker speaks of a limit:\n%s", log.text())
		}
	})
}

// N3: a denial reaches the client at once and is no timeout.
func TestN3ADenialIsNoTimeout(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		v := newVillage(t, nil)
		g := v.grant(t, "ada", "ada")
		creds := must(v.person(t, "ada", "ada").Credentials(t.Context()))(t)
		if err := v.knock(t, creds); err != nil {
			t.Fatal(err)
		}
		must(v.authority().Revoke(t.Context(), v.space, g.Principal()))(t)
		began := time.Now()
		if err := v.knock(t, creds); !errors.Is(err, wire.ErrUnauthenticated) {
			t.Errorf("denied with %v, want unauthenticated", err)
		}
		if took := time.Since(began); took >= time.Second {
			t.Errorf("denied after %s", took)
		}
	})
}

// N5: every callout responder is stopped. Who is connected stays connected and works; the services, an admin and the operator of the broker
// connect as ever; only people who knock now wait for one.
func TestN5WithoutAResponder(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		v := newVillage(t, nil)
		v.grant(t, "ada", "ada")
		src := v.person(t, "ada", "ada")
		var events journal[endpoint.Event]
		ada := v.join(t, src, events.add)
		v.stop()
		m := v.authority().Mint()
		for _, p := range trust.Profiles() {
			req := mint.UserRequest{Space: v.space, Profile: p, Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "operator"}}
			creds := must(m.User(t.Context(), req))(t)
			if err := v.knock(t, creds); err != nil {
				t.Errorf("profile %s: %v", p, err)
			}
		}
		for _, k := range trust.SystemKinds() {
			req := mint.SystemRequest{Kind: k}
			if k == trust.SystemWatcher {
				req.Account = must(m.Account(t.Context(), v.space))(t).Public
			}
			if err := v.knock(t, must(m.SystemUser(t.Context(), req))(t)); err != nil {
				t.Errorf("system kind %s: %v", k, err)
			}
		}
		for range 10 {
			time.Sleep(time.Minute)
			must(ada.Post(t.Context(), "general", endpoint.Text("still here")))(t)
		}
		v.grant(t, "ada", "another") // the authority works as well
		if told := events.take(); len(told) != 0 {
			t.Errorf("who was connected was told %v", told)
		}
		creds := must(src.Credentials(t.Context()))(t)
		if err := v.knock(t, creds); !errors.Is(err, wire.ErrUnauthenticated) && !errors.Is(err, wire.ErrUnavailable) {
			t.Errorf("a person who knocks: %v, want a refusal", err)
		}
		v.answer(t)
		if err := v.knock(t, creds); err != nil {
			t.Errorf("the same once somebody answers: %v", err)
		}
	})
}

// N6: two spaces, each with a callout in an account of its own, which lets people into the account of its space. Each lands in that one and in no other.
func TestN6EachLandsInItsOwnSpace(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		one := newVillage(t, &cotaltest.Options{Spaces: []string{"other"}})
		two := one.beside(t, "other")
		ctl := control(t, one.Mesh, 0)
		var rooms []string
		for _, v := range []*village{one, two} {
			g := v.grant(t, "ada", "ada")
			creds := must(v.person(t, "ada", "ada").Credentials(t.Context()))(t)
			nc := must(v.dial(t, creds))(t)
			defer nc.Close()
			rec := must(v.authority().Mint().Account(t.Context(), v.space))(t)
			for _, account := range rec.Accounts() {
				n := 0
				for _, c := range must(ctl.Connections(t.Context(), account.Public))(t) {
					if c.HasTags("uid:" + string(g.UID)) {
						n++
					}
				}
				if want := account.Public == rec.Public; (n == 1) != want {
					t.Errorf("space %s: %d connections in account %s", v.space, n, account.Public)
				}
			}
			rooms = append(rooms, rec.Public, rec.Callout.Public)
		}
		if rooms[0] == rooms[2] || rooms[1] == rooms[3] {
			t.Errorf("the spaces share an account: %q", rooms)
		}
		foreign := must(two.person(t, "ada", "ada").Credentials(t.Context()))(t)
		id := foreign.Identity()
		id.UserKey = ""
		sentinel := must(one.authority().Mint().Sentinel(t.Context(), one.space, 0))(t)
		mixed, err := trust.NewBearerCredentials(trust.Bearer{Sentinel: sentinel, Token: foreign.Token(), Seed: anySeed(t), Identity: id})
		if err != nil {
			t.Fatal(err)
		}
		if err := one.knock(t, mixed); !errors.Is(err, wire.ErrUnauthenticated) {
			t.Errorf("a bearer of one space at the door of the other: %v, want a refusal", err)
		}
	})
}

// N17: nothing can be asked about a client five times in a row. It is refused five times, goes on trying, and is back.
func TestN17FiveRefusalsInARow(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		v := newVillage(t, nil)
		g := v.grant(t, "ada", "ada")
		var events journal[endpoint.Event]
		ada := v.join(t, v.person(t, "ada", "ada"), events.add)
		v.away.Store(5)
		ctl := control(t, v.Mesh, 0)
		rec := must(v.authority().Mint().Account(t.Context(), v.space))(t)
		if n := must(ctl.EvictTagged(t.Context(), rec.Public, "uid:"+string(g.UID)))(t); n != 1 {
			t.Fatalf("%d connections ended, want 1", n)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if !ada.Connected() {
			t.Error("ada is not back")
		}
		must(ada.Post(t.Context(), "general", endpoint.Text("back")))(t)
		denied := 0
		for _, d := range v.decided() {
			if !d.OK {
				denied++
			}
		}
		if told := count[endpoint.EventRefused](events.take()); denied != 5 || told != 5 {
			t.Errorf("refused %d times, told %d times, want 5", denied, told)
		}
	})
}
