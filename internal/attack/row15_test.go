package attack_test

import (
	"context"
	"crypto/ed25519"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// counting decides by the grants of a town and counts how often it is asked, and by how many at once.
type counting struct {
	w               *town
	asked, now, top atomic.Int64
}

func (c *counting) AdmitPerson(ctx context.Context, req auth.PersonRequest) (auth.Admission, error) {
	return c.w.authority().AdmitPerson(ctx, c.w.Space(), req)
}

func (c *counting) AdmitAgent(ctx context.Context, req auth.AgentRequest) (auth.Admission, error) {
	return c.w.authority().AdmitAgent(ctx, c.w.Space(), req)
}

func (c *counting) Connect(ctx context.Context, s wire.Space, req auth.ConnectRequest) (string, auth.Admission, error) {
	c.asked.Add(1)
	for n := c.now.Add(1); ; {
		top := c.top.Load()
		if n <= top || c.top.CompareAndSwap(top, n) {
			break
		}
	}
	defer c.now.Add(-1)
	return c.w.authority().Connect(ctx, s, req)
}

// badConnects are what a storm is made of; asks says that the broker asks the callout about it.
func (w *town) badConnects(t testing.TB, good *trust.Credentials) []struct {
	rude
	asks bool
} {
	t.Helper()
	keys := must[*bearer.Keys](t)(bearer.EnsureKeys(t.Context(), w.Store(), w.Space()))
	foreign := must[*bearer.Keys](t)(bearer.EnsureKeys(t.Context(), w.Store(), "other"))
	id, thief := good.Identity(), newKey(t)
	claims := bearer.Claims{
		Subject: id.Owner, Act: bearer.Act{Owner: id.Owner, Actor: id.Actor, UID: id.UID, Epoch: 1, Inbox: string(id.UID)},
		Confirmation: must[ed25519.PublicKey](t)(bearer.PublicKey(thief.Public())),
	}
	other, _, err := bearer.NewIssuer("other", foreign).Sign(t.Context(), claims, bearer.MaxAgentLife)
	if err != nil {
		t.Fatal(err)
	}
	expired, c, err := bearer.NewIssuer(w.Space(), keys).Sign(t.Context(), claims, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Until(c.Expires) + time.Second)
	sign := func(nonce []byte) ([]byte, error) { return thief.Sign(context.Background(), nonce) }
	sentinel, own := good.JWT(), good.Token()
	return []struct {
		rude
		asks bool
	}{
		{rude{jwt: sentinel, token: "junk"}, true},
		{rude{jwt: sentinel, token: expired, sign: sign}, true},
		{rude{jwt: sentinel, token: strings.Repeat("A", 9<<10)}, true},
		{rude{jwt: sentinel, token: strings.Repeat("A", 100<<10)}, false}, // more than the broker reads of a client
		{rude{jwt: sentinel}, true},
		{rude{jwt: sentinel, token: other, sign: sign}, true},
		{rude{jwt: sentinel, token: own, sign: sign}, true}, // stolen
		{rude{jwt: sentinel, token: own[:len(own)-9] + "AAAAAAAAA", sign: good.Sign}, true},
		{rude{token: own}, false},
		{rude{}, false},
		{rude{jwt: sentinel[:len(sentinel)-9] + "AAAAAAAAA", token: own, sign: good.Sign}, false},
		{rude{jwt: own, token: sentinel}, false},
	}
}

// TestRow15GoodLoginsComeThroughAStorm: five thousand bad connects of twelve kinds from 64 clients at the same address as the good ones. Every
// good login succeeds, no bad one does or reaches the records, everything that the callout refused is in the audit stream, counted, and
// what it works on at once stays bounded.
func TestRow15GoodLoginsComeThroughAStorm(t *testing.T) {
	t.Parallel()
	const storm = 5000
	records := &counting{}
	w := newTown(t, &cotaltest.Options{Listen: true, Spaces: []string{"other"}, People: cotal.PeopleOptions{
		Grants: func(string) cotal.PeopleGrants { return records },
	}})
	records.w = w
	w.grant(t, "ada", "ada", nil)
	people := actorIDs("person", 4)
	var logins []*trust.Credentials
	for _, actor := range people {
		w.grant(t, actor, actor, nil)
		logins = append(logins, w.credentials(t, actor, actor))
	}
	bad := w.badConnects(t, w.credentials(t, "ada", "ada"))
	before := w.denied(t)
	asked := records.asked.Load()

	left := make(chan int, storm)
	wantDenied := uint64(0)
	for i := range storm {
		left <- i % len(bad)
		if bad[i%len(bad)].asks {
			wantDenied++
		}
	}
	close(left)
	var attack, good sync.WaitGroup
	over := make(chan struct{})
	for range 64 {
		attack.Go(func() {
			for i := range left {
				r := bad[i]
				r.url, r.name = w.URL(), "storm"
				if nc, err := r.connect(nil); err == nil {
					nc.Close()
					t.Errorf("bad connect %d succeeded", i)
				}
			}
		})
	}
	var came, late atomic.Int64
	for _, creds := range logins {
		good.Go(func() { w.keepComing(t, creds, over, &came, &late) })
	}
	attack.Wait()
	close(over)
	good.Wait()

	if came.Load() == 0 {
		t.Error("no good login was tried in the storm")
	}
	if got := records.asked.Load() - asked; got < came.Load() || got > came.Load()+late.Load() {
		t.Errorf("the records were asked about %d connections, want the %d good ones, and at most %d that were decided too late", got, came.Load(), late.Load())
	}
	if late.Load() > max(2, came.Load()/20) {
		t.Errorf("%d of %d good logins were decided too late", late.Load(), came.Load())
	}
	if top := records.top.Load(); top > 64 {
		t.Errorf("the records were asked about %d connections at once", top)
	}
	w.Restart(t) // what was counted in the last minute is written when the node ends
	after := w.denied(t)
	if got := after.count - before.count; got != wantDenied {
		t.Errorf("the audit stream counts %d refused connections, want %d: %v", got, wantDenied, after.reasons)
	}
	if got := after.records - before.records; got > 60 {
		t.Errorf("%d audit records of a storm of %d", got, storm)
	}
	t.Logf("%d bad connects, %d good ones, %d audit records: %v", storm, came.Load(), after.records-before.records, after.reasons)
	if err := w.knock(t, w.credentials(t, "ada", "ada")); err != nil {
		t.Errorf("after the storm: %v", err)
	}
}

// keepComing logs in again and again until over is closed. Each time must succeed, as a client does it that comes once more: a machine
// that is short of processors may decide one after the broker's limit.
func (w *town) keepComing(t testing.TB, creds *trust.Credentials, over <-chan struct{}, came, late *atomic.Int64) {
	for {
		select {
		case <-over:
			return
		default:
		}
		knock := rude{url: w.URL(), jwt: creds.JWT(), token: creds.Token(), name: "good", sign: creds.Sign}
		nc, err := knock.connect(nil)
		if err != nil {
			late.Add(1)
			nc, err = knock.connect(nil)
		}
		if err != nil {
			t.Errorf("good login %d in the storm: %v", came.Load(), err)
			return
		}
		came.Add(1)
		nc.Close()
	}
}

// denials is what the audit stream says of refused connections.
type denials struct {
	records int
	count   uint64
	reasons map[trust.Reason]uint64
}

func (w *town) denied(t testing.TB) denials {
	t.Helper()
	out := denials{reasons: map[trust.Reason]uint64{}}
	for after := uint64(0); ; {
		page, next, err := w.authority().Audit(t.Context(), w.Space(), space.AuditQuery{
			After: after, Action: space.ActionConnect, Outcome: space.OutcomeDenied, Limit: space.MaxAuditPage,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			out.records++
			out.count += max(e.Count, 1)
			out.reasons[e.Reason] += max(e.Count, 1)
		}
		if after = next; len(page) < space.MaxAuditPage {
			return out
		}
	}
}
