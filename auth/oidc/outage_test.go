package oidc_test

import (
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/trust"
)

// TestO28OutageFailsFast: a hundred logins while the provider hangs cost one wait and few reads, and the first valid login
// after it is back works.
func TestO28OutageFailsFast(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		v, set, p := newLogin().mesh(t)
		p.answers(hangs)
		token := newLogin().token()
		began := time.Now()
		var all sync.WaitGroup
		for range 50 { // together they share one read
			all.Go(func() {
				c, err := v.Verify(t.Context(), token)
				refused(t, c, err, trust.ReasonIDP)
			})
		}
		all.Wait()
		if took := time.Since(began); took != 5*time.Second || p.count() != 1 {
			t.Fatalf("50 logins at once: %s, %d reads, want 5s and 1", took, p.count())
		}
		began = time.Now()
		for range 50 { // the pause is on: nobody waits
			c, err := v.Verify(t.Context(), token)
			refused(t, c, err, trust.ReasonIDP)
		}
		if took := time.Since(began); took != 0 || p.count() != 1 {
			t.Fatalf("50 logins more: %s, %d reads, want 0s and 1", took, p.count())
		}
		// The pauses grow: a login each 100 ms for ten minutes makes few reads.
		p.answers(down)
		for range 6000 {
			_, _ = v.Verify(t.Context(), token)
			time.Sleep(100 * time.Millisecond)
		}
		if n := p.count(); n < 10 || n > 18 {
			t.Errorf("%d reads in ten minutes of outage, want 6 while the pause doubles and then one a minute", n)
		}
		p.answers(nil)
		wait := time.Until(set.Status().Retry)
		if wait > oidc.MaxPause {
			t.Errorf("pause of %s, limit %s", wait, oidc.MaxPause)
		}
		time.Sleep(wait)
		c, err := v.Verify(t.Context(), token2())
		accepted(t, c, err)
		if st := set.Status(); st.Failures != 0 || st.Err != "" || !st.Retry.IsZero() {
			t.Errorf("status after recovery = %+v", st)
		}
	})
}

// token2 is a login made now, for a test whose first has expired.
func token2() string { return newLogin().token() }

// TestO28NewKeyAfterAnOutage: a login with a new key is refused while the provider is down, and that does not count as the one
// read a minute: it works with the first try after the pause.
func TestO28NewKeyAfterAnOutage(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		v, _, p := newLogin().mesh(t)
		c, err := v.Verify(t.Context(), token2())
		accepted(t, c, err)
		p.answers(down)
		p.publish(jwk("new", keys().rsa2, nil))
		c, err = v.Verify(t.Context(), withKey("new", "RS256", keys().rsa2))
		refused(t, c, err, trust.ReasonIDP)
		p.answers(nil)
		time.Sleep(oidc.MinPause)
		c, err = v.Verify(t.Context(), withKey("new", "RS256", keys().rsa2))
		accepted(t, c, err)
	})
}

// TestO28OutageKeepsTheLastGoodSet: people whose key is known log in through an outage of days, without waiting, and the
// state shows it.
func TestO28OutageKeepsTheLastGoodSet(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		v, set, p := newLogin().mesh(t)
		c, err := v.Verify(t.Context(), newLogin().token())
		accepted(t, c, err)
		p.answers(hangs)
		for hour := range 72 {
			time.Sleep(time.Hour)
			began := time.Now()
			c, err := v.Verify(t.Context(), token2())
			accepted(t, c, err)
			if took := time.Since(began); took != 0 && hour > 0 {
				t.Fatalf("hour %d: a login waited %s", hour, took)
			}
			c, err = v.Verify(t.Context(), withKey("new", "RS256", keys().rsa2))
			refused(t, c, err, trust.ReasonIDP)
		}
		if st := set.Status(); !st.Stale || st.Keys != 1 || st.Failures == 0 || st.Err == "" {
			t.Errorf("status = %+v, want stale, one key and an error", st)
		}
		p.answers(nil)
		p.publish(jwk("new", keys().rsa2, nil))
		time.Sleep(oidc.MaxPause)
		c, err = v.Verify(t.Context(), withKey("new", "RS256", keys().rsa2))
		accepted(t, c, err)
		c, err = v.Verify(t.Context(), token2())
		refused(t, c, err, trust.ReasonSignature)
	})
}
