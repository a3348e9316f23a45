package auth_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestNarrowingResumes interrupts a renewal that takes rights away after the grant is written: nothing is handed out, and the
// next renewal, whatever it asks for, refuses the credentials of before.
func TestNarrowingResumes(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	a := m.Node().Authority()
	wide := m.Credentials(t, "ada", nil)
	broken := auth.New(a.Mint(), noPush{}, m.Node().Dial, nil)
	narrow := auth.Request{Space: m.Space(), Actor: "ada", Subscribe: []string{"team"}}
	creds, _, err := broken.Renew(t.Context(), narrow)
	if creds != nil || err == nil {
		t.Fatalf("renew without a broker to push to = %v, %v; want no credential and an error", creds, err)
	}
	if err := broken.Close(); err != nil {
		t.Fatal(err)
	}
	grants, err := a.List(t.Context(), m.Space())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(grants, func(g trust.Grant) bool { return g.Actor == "ada" })
	if g := grants[i]; !slices.Equal(g.AllowSubscribe, narrow.Subscribe) || g.Refusing == 0 {
		t.Errorf("grant after the interruption = %+v, want narrowed and marked", g)
	}
	next, done, err := a.Renew(t.Context(), auth.Request{Space: m.Space(), Actor: "ada"})
	if err != nil || !done.Narrowed || done.Keys != 1 {
		t.Fatalf("renew again = %+v, %v; want the key of before refused", done, err)
	}
	if err := connects(t, m, wide); !errors.Is(err, wire.ErrUnauthenticated) {
		t.Errorf("connect with the credential of before = %v, want unauthenticated", err)
	}
	if err := connects(t, m, next); err != nil {
		t.Errorf("connect with the new credential: %v", err)
	}
	if _, done, err = a.Renew(t.Context(), auth.Request{Space: m.Space(), Actor: "ada"}); err != nil || done.Narrowed {
		t.Errorf("a third renewal = %+v, %v; want nothing left to refuse", done, err)
	}
	if err := connects(t, m, next); err != nil {
		t.Errorf("connect after a plain renewal: %v", err)
	}
}

// TestNarrowingRacesRenewal renews from several sides while the grant is narrowed: what was handed out under the wide one
// connects no more once that has returned, and what was handed out under the narrow one always does.
func TestNarrowingRacesRenewal(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	a := m.Node().Authority()
	m.Credentials(t, "ada", nil)
	var mu sync.Mutex
	var out []*trust.Credentials
	stop := make(chan struct{})
	begun := make(chan struct{}, 8)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				creds, err := a.Issue(t.Context(), auth.Request{Space: m.Space(), Actor: "ada", Renew: true})
				if err == nil {
					mu.Lock()
					out = append(out, creds)
					mu.Unlock()
				} else if !errors.Is(err, wire.ErrConflict) {
					t.Errorf("renew: %v", err)
					return
				}
				select {
				case <-stop:
					return
				case begun <- struct{}{}:
				default:
				}
			}
		})
	}
	for range cap(begun) {
		<-begun
	}
	creds, _, err := a.Renew(t.Context(), auth.Request{Space: m.Space(), Actor: "ada", Subscribe: []string{"team"}})
	if err != nil {
		t.Fatal(err)
	}
	close(stop)
	wg.Wait()
	wide := 0
	for _, c := range append(out, creds) {
		err := connects(t, m, c)
		if slices.Equal(c.Identity().Subscribe, []string{"team"}) {
			if err != nil {
				t.Errorf("a credential of the narrow grant does not connect: %v", err)
			}
		} else if wide++; !errors.Is(err, wire.ErrUnauthenticated) {
			t.Errorf("a credential of the wide grant connects: %v", err)
		}
	}
	if wide == 0 {
		t.Error("no credential of the wide grant was handed out")
	}
}
