package field_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/authtest"
	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// N15: a person works through an hour on bearers of a quarter of one. Each is replaced on a second connection before the first is dropped, so
// nothing that is said in that hour is missed, shown twice or out of order, in a channel, as a member or directly, and what the
// person says is heard.
func TestN15BearersAreReplacedWithoutAGap(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		v := newVillage(t, nil)
		v.grant(t, "ada", "ada")
		v.grant(t, "bob", "bob")
		var adas, bobs journal[endpoint.Event]
		ada, bob := v.join(t, v.person(t, "ada", "ada"), adas.add), v.join(t, v.person(t, "bob", "bob"), bobs.add)
		var live, member, direct, said journal[string]
		hear := func(j *journal[string]) func(d *endpoint.Delivery) {
			return func(d *endpoint.Delivery) { j.add(d.Message.Text()) }
		}
		must(ada.Listen(t.Context(), "live", hear(&live)))(t)
		must(ada.Join(t.Context(), "team", hear(&member), nil))(t)
		ok(t, "handle", ada.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
			direct.add(d.Message.Text())
			ok(t, "ack", d.Ack(t.Context()))
		}))
		must(bob.Listen(t.Context(), "said", hear(&said)))(t)
		var want []string
		for i := range 720 { // an hour
			text := fmt.Sprint(i)
			want = append(want, text)
			must(bob.Post(t.Context(), "live", endpoint.Text(text)))(t)
			must(bob.Post(t.Context(), "team", endpoint.Text(text)))(t)
			must(bob.Direct(t.Context(), ada.Principal(), endpoint.Text(text)))(t)
			must(ada.Post(t.Context(), "said", endpoint.Text(text)))(t)
			time.Sleep(5 * time.Second)
		}
		synctest.Wait()
		for what, j := range map[string]*journal[string]{"live": &live, "as a member": &member, "direct": &direct, "from ada": &said} {
			if got := j.take(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %d of %d messages, or out of order: %v", what, len(got), len(want), got)
			}
		}
		for who, j := range map[string]*journal[endpoint.Event]{"ada": &adas, "bob": &bobs} {
			told := j.take()
			if n := count[endpoint.EventRenewed](told); n < 4 || n > 6 {
				t.Errorf("%s was renewed %d times in an hour, want about every 11 minutes", who, n)
			}
			for _, e := range told {
				switch e.(type) {
				case endpoint.EventRenewed, endpoint.EventCaughtUp: // a member may find a message that came while it moved by looking
				default:
					t.Errorf("%s was told %T %v", who, e, e)
				}
			}
		}
		if n := v.given.Load(); n > 16 {
			t.Errorf("%d bearers in an hour for two people", n)
		}
	})
}

// N16: the bearer ends while the broker is away. When it is back the client comes back by itself, with a new one.
func TestN16ABearerEndsDuringAnOutage(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		v := newVillage(t, nil)
		v.grant(t, "ada", "ada")
		var events journal[endpoint.Event]
		src := v.person(t, "ada", "ada")
		var shown journal[*trust.Credentials]
		ada := v.join(t, endpoint.SourceFunc(func(ctx context.Context) (*trust.Credentials, error) {
			c, err := src.Credentials(ctx)
			if err == nil {
				shown.add(c)
			}
			return c, err
		}), events.add)
		first := shown.take()[0]
		v.Stop()
		time.Sleep(40 * time.Minute)
		synctest.Wait()
		if !first.Expired(time.Now()) || ada.Connected() {
			t.Fatal("nothing was tried")
		}
		v.decided()
		v.Restart(t)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if !ada.Connected() {
			t.Fatalf("ada is not back: %v", events.take())
		}
		must(ada.Post(t.Context(), "general", endpoint.Text("back")))(t)
		all := shown.take()
		if len(all) == 0 || all[len(all)-1].Expired(time.Now()) {
			t.Errorf("%d bearers were asked for", len(all))
		}
		for _, d := range v.decided() {
			if !d.OK {
				t.Errorf("the callout was shown a bearer that ended: %+v", d)
			}
		}
	})
}

// C37: the credentials of twenty people end while the broker is away. When it is back each of them asks the exchange once and connects once,
// under the name that it always has; none presents what has ended. Those who are refused for good ask less and less often.
func TestC37ExpiredCredentialsDoNotStorm(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		v := newVillage(t, nil)
		const n = 20
		eps := make([]*endpoint.Endpoint, n)
		var events journal[endpoint.Event]
		for i := range n {
			actor := fmt.Sprintf("agent_%d", i)
			v.grant(t, "ada_"+actor, actor)
			eps[i] = v.join(t, v.person(t, "ada_"+actor, actor), events.add)
		}
		v.Stop()
		time.Sleep(time.Hour)
		synctest.Wait()
		given := v.given.Load()
		v.decided()
		v.Restart(t)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		for _, ep := range eps {
			if !ep.Connected() {
				t.Errorf("%s is not back", ep.Principal())
			}
		}
		if got := v.given.Load() - given; got != n {
			t.Errorf("%d bearers for %d people who came back, want one each", got, n)
		}
		names := map[string]int{}
		for _, d := range v.decided() {
			if !d.OK {
				t.Errorf("refused: %+v", d)
			}
			names[d.ConnectionName]++
		}
		for _, ep := range eps {
			if got := names[ep.Principal().String()]; got != 1 {
				t.Errorf("%s connected %d times under its name: %v", ep.Principal(), got, names)
			}
		}

		// Refused for good: one of them is revoked, and asks ever more slowly.
		gone := eps[0].Principal()
		must(v.authority().Revoke(t.Context(), v.space, gone))(t)
		var asked []int64
		for range 6 {
			before := v.refused.Load()
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			asked = append(asked, v.refused.Load()-before)
		}
		knocked := 0
		for _, d := range v.decided() {
			if d.OK && d.Lifecycle.Principal == gone {
				t.Errorf("let in after the revocation: %+v", d)
			}
			if !d.OK {
				knocked++
				if d.ConnectionName != gone.String() {
					t.Errorf("refused under the name %q, want %q", d.ConnectionName, gone)
				}
			}
		}
		t.Logf("who was revoked asked the exchange %v times each ten minutes and was refused %d times by the broker in an hour", asked, knocked)
		for i, got := range asked {
			if limit := int64(40); got > limit || i > 0 && got > limit/2 { // while its bearer lasts each refusal by the broker makes it ask, too
				t.Errorf("minutes %d to %d: asked %d times", 10*i, 10*i+10, got)
			}
		}
		if knocked > 60 { // the bearer of before is shown until it ends
			t.Errorf("the broker refused it %d times in an hour", knocked)
		}
		if told := count[endpoint.EventRenewalFailed](events.take()); told == 0 {
			t.Error("nobody was told")
		}
	})
}

// O12: a person signs in, the sign-in ends, and the same person signs in again: it is the same actor, with one life and one row.
func TestO12SignedInAgainIsTheSameActor(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		v := newVillage(t, nil)
		g := v.grant(t, "ada", "ada")
		watcher := v.join(t, v.person(t, "bob", v.grant(t, "bob", "bob").Actor), nil)
		var token atomic.Value
		signIn := func() { token.Store("until " + time.Now().Add(time.Hour).Format(time.RFC3339) + " ada") }
		signIn()
		src := login.HumanSource(v.exchange(t), tokenOf{&token}, login.HumanRequest{Actor: "ada"})
		first := v.join(t, src, nil)
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if first.Connected() {
			t.Fatal("connected after the sign-in ended, so nothing is tried")
		}
		if _, err := src.Credentials(t.Context()); trust.ReasonOf(err) != trust.ReasonExpired {
			t.Errorf("after the sign-in ended: %v, want expired", err)
		}
		signIn()
		second := v.join(t, src, nil)
		time.Sleep(2 * time.Minute) // and the program of before comes back too
		synctest.Wait()
		if second.Lifecycle() != g.Lifecycle() || first.Lifecycle() != g.Lifecycle() || !first.Connected() {
			t.Errorf("lives %v and %v, want %v of both; the first is back: %t", first.Lifecycle(), second.Lifecycle(), g.Lifecycle(), first.Connected())
		}
		rows := 0
		for _, e := range must(watcher.Roster(t.Context()))(t).Entries {
			if e.Principal == g.Principal().String() {
				rows++
			}
		}
		if rows != 1 {
			t.Errorf("ada has %d rows", rows)
		}
		all := must(v.authority().List(t.Context(), v.space))(t)
		if len(all) != 2 {
			t.Errorf("%d grants, want those of ada and bob: %+v", len(all), all)
		}
	})
}

// tokenOf is a sign-in whose token is whatever the pointer holds.
type tokenOf struct{ v *atomic.Value }

// IDToken implements [login.Proof].
func (p tokenOf) IDToken(context.Context) (string, time.Time, error) {
	return p.v.Load().(string), time.Time{}, nil
}

// O13: what was granted for 72 hours ends after 72 hours, whatever is started anew in between.
func TestO13TheEndOfAGrantSurvivesRestarts(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		v := newVillage(t, nil)
		end := time.Now().Add(72 * time.Hour).UTC()
		g := v.grant(t, "ada", "ada", func(r *auth.GrantRequest) { r.Expires = &end })
		src := v.person(t, "ada", "ada")
		for day := range 3 {
			ep := v.join(t, src, nil)
			must(ep.Post(t.Context(), "general", endpoint.Text("still here")))(t)
			ok(t, "close", ep.Close())
			v.stop()
			v.Stop() // for the night
			time.Sleep(time.Until(end.Add(time.Duration(day-2)*24*time.Hour - time.Minute)))
			v.Restart(t)
			v.answer(t)
			src = v.person(t, "ada", "ada")
			in := must(v.authority().Inspect(t.Context(), v.space, g.Principal()))(t)
			if in.Grant.ExpiresAt == nil || !in.Grant.ExpiresAt.Equal(end) || in.Grant.UID != g.UID {
				t.Errorf("day %d: the grant ends at %v, want %s", day, in.Grant.ExpiresAt, end)
			}
		}
		b := must(src.Bearer(t.Context()))(t)
		if b.Expires.After(end) {
			t.Errorf("a bearer of the last minute ends at %s, the grant at %s", b.Expires, end)
		}
		ep := v.join(t, src, nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if ep.Connected() {
			t.Error("connected after the end")
		}
		if _, err := src.Bearer(t.Context()); trust.ReasonOf(err) != trust.ReasonGrantExpired {
			t.Errorf("after the end: %v, want grant-expired", err)
		}
	})
}

// O27: an agent works three times as long as a bearer lasts and delegates at three times in it. What it hands on is fresh each time, and is
// still good when it is used minutes later.
func TestO27DelegationsOfALongTask(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		v := newVillage(t, nil)
		life := v.grant(t, "ada", "ada").Lifecycle()
		granted, err := authtest.Grant(t.Context(), v.authority(), auth.GrantRequest{Space: v.space, Actor: "worker", Parent: &life, Subscribe: []string{">"}, Publish: []string{">"}})
		if err != nil {
			t.Fatal(err)
		}
		agent := login.AgentSource(v.exchange(t), login.AgentRequest{Owner: granted.Owner, Actor: "worker", ActorToken: granted.Secret})
		began := must(agent.Bearer(t.Context()))(t)
		worker := v.join(t, agent, nil)
		seen := map[string]bool{began.Reveal(): true}
		for i := range 3 {
			time.Sleep(5 * time.Minute)
			b := must(agent.Bearer(t.Context()))(t)
			if seen[b.Reveal()] || time.Until(b.Expires) < 4*time.Minute {
				t.Errorf("delegation %d gets a bearer that ends in %s", i, time.Until(b.Expires))
			}
			seen[b.Reveal()] = true
			time.Sleep(4 * time.Minute)
			creds := must(b.Credentials())(t)
			if err := v.knock(t, creds); err != nil {
				t.Errorf("delegation %d, four minutes after it was handed on: %v", i, err)
			}
			must(worker.Post(t.Context(), "general", endpoint.Text("at work")))(t)
		}
		if err := v.knock(t, must(began.Credentials())(t)); !errors.Is(err, wire.ErrExpired) && !errors.Is(err, wire.ErrUnauthenticated) {
			t.Errorf("the bearer of the beginning, at the end: %v, want expired", err)
		}
	})
}
