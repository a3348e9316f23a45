package fault_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

const (
	// patience is how long our client tries to sign in unless it is told otherwise.
	patience = 10 * time.Second
	// takeover is how long a lease may stand after its holder died: its life, the margin for clocks, and a look of the others.
	takeover = 12*time.Second + space.LeaseMargin + 3*time.Second
)

// storm is people who sign in and leave again and again.
type storm struct {
	patience time.Duration // how long a client tries to sign in

	mu     sync.Mutex // guards the fields below
	took   []time.Duration
	tries  int
	failed []error
}

// rage lets n people sign in through an address until ctx ends, each as often as the limits of an exchange allow.
func (s *storm) rage(ctx context.Context, t *testing.T, front, brokerURL string, n int, every time.Duration) (wait func()) {
	var wg sync.WaitGroup
	for i := range n {
		x, err := login.NewExchange(&login.ExchangeOptions{URL: front, Patience: s.patience})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for ctx.Err() == nil {
				began := time.Now()
				tries, err := signIn(t.Context(), x, brokerURL, subject(i), s.patience)
				s.mu.Lock()
				s.took, s.tries = append(s.took, time.Since(began)), s.tries+tries
				if err != nil {
					s.failed = append(s.failed, fmt.Errorf("%s after %v: %w", subject(i), time.Since(began), err))
				}
				s.mu.Unlock()
				select {
				case <-ctx.Done():
				case <-tick.C:
				}
			}
		})
	}
	return wg.Wait
}

func subject(i int) string { return fmt.Sprintf("user-%d", i) }

// signIn exchanges and connects, again for as long as a client does.
func signIn(ctx context.Context, x *login.Exchange, brokerURL, sub string, patience time.Duration) (tries int, err error) {
	for began := time.Now(); ; {
		tries++
		var b login.Bearer
		if b, err = x.Human(ctx, login.HumanRequest{IDToken: func() string { return sub }, Actor: "ada"}); err != nil {
			return tries, err
		}
		creds, err := b.Credentials()
		if err != nil {
			return tries, err
		}
		nc, err := dial.Connect(ctx, dial.Options{URL: brokerURL, Creds: creds, Name: sub})
		if err == nil {
			nc.Close()
			return tries, nil
		}
		if time.Since(began) > patience {
			return tries, err
		}
	}
}

func (s *storm) report(t *testing.T, least int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.took)
	n := len(s.took)
	if n < least {
		t.Fatalf("only %d logins: too few to prove anything", n)
	}
	t.Logf("%d logins in %d tries: half within %v, 99 of 100 within %v, the slowest %v", n, s.tries, s.took[n/2].Round(time.Millisecond),
		s.took[n*99/100].Round(time.Millisecond), s.took[n-1].Round(time.Millisecond))
	for _, err := range s.failed {
		t.Errorf("a login failed for longer than a client tries: %v", err)
	}
	if s.took[n-1] > s.patience {
		t.Errorf("a login took %v", s.took[n-1])
	}
}

// enrol grants the people of a storm.
func enrol(t *testing.T, a *auth.Authority, s wire.Space, owner func(issuer, sub string) (string, error), n int) {
	t.Helper()
	for i := range n {
		o, err := owner(personIssuer, subject(i))
		if err == nil {
			_, err = a.Grant(t.Context(), auth.GrantRequest{Space: s, Owner: o, Actor: "ada", Subscribe: []string{"team.>"}, Publish: []string{"team.>"}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRow7ThePrimaryIsKilledInALoginStorm kills the first of three authorities while people sign in. No login fails for longer
// than a client tries, and another authority takes the lease over when it has ended.
func TestRow7ThePrimaryIsKilledInALoginStorm(t *testing.T) {
	t.Parallel()
	c := newCity(t)
	const people = 16
	enrol(t, c.Node().Authority(), c.Space(), c.owners.Owner, people)
	first := c.authority(t, false)
	if !first.status.Primary {
		t.Fatalf("the first authority is not the primary: %+v", first.status)
	}
	for range 2 {
		if r := c.authority(t, true); r.status.Primary {
			t.Fatalf("a replica is the primary: %+v", r.status)
		}
	}
	held := c.lease(t)
	s := storm{patience: patience}
	ctx, stop := context.WithCancel(t.Context())
	wait := s.rage(ctx, t, c.front.url, c.URL(), people, 200*time.Millisecond)
	pause(2 * time.Second) // real time: the processes are real, and it is to be in the middle of the storm
	before := time.Now()
	first.killed()
	pause(4 * time.Second)
	stop()
	wait()
	s.report(t, 100)
	next := c.leaseMoves(t, held, takeover-time.Since(before)+2*time.Second)
	t.Logf("the lease moved from fence %d to %d after %v", held.Fence, next.Fence, time.Since(before).Round(100*time.Millisecond))
}

// TestRow7ASecondPrimaryIsRefused: it is told how to join, and the first one goes on.
func TestRow7ASecondPrimaryIsRefused(t *testing.T) {
	t.Parallel()
	c := newCity(t)
	first := c.authority(t, false)
	held := c.lease(t)
	second := startAuthority(t, c.dir, c.URL(), string(c.Space()), c.front.url, false)
	if second.alive() || second.ended == nil {
		t.Fatal("a second primary serves")
	}
	if !strings.Contains(second.said.String(), "cotal serve authority --replica") {
		t.Errorf("it does not say how to join: %s", second.said)
	}
	if l := c.lease(t); !first.alive() || l.Holder != held.Holder || l.Fence != held.Fence {
		t.Errorf("the lease went from %+v to %+v", held, l)
	}
}

// copyRecords copies the secrets of one folder to another.
func copyRecords(t *testing.T, from, to string) {
	t.Helper()
	src, err := records(from)
	if err != nil {
		t.Fatal(err)
	}
	dst, err := records(to)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := src.(secret.Lister).List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		value, err := src.Get(t.Context(), key)
		if err == nil {
			err = dst.Put(t.Context(), key, value)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRow7AnAuthorityWithoutRecordsEnds: a process whose secret store is gone does not go on with what it remembers.
func TestRow7AnAuthorityWithoutRecordsEnds(t *testing.T) {
	t.Parallel()
	c := newCity(t)
	own := t.TempDir()
	copyRecords(t, c.dir, own)
	a := startAuthority(t, own, c.URL(), string(c.Space()), c.front.url, false)
	if !a.alive() {
		t.Fatalf("authority ended: %s", a.said)
	}
	if err := os.RemoveAll(own); err != nil {
		t.Fatal(err)
	}
	select {
	case <-a.done:
	case <-time.After(20 * time.Second):
		t.Fatalf("it goes on without its records: %s", a.said)
	}
	var exit interface{ ExitCode() int }
	if !errors.As(a.ended, &exit) || exit.ExitCode() <= 0 || !strings.Contains(a.said.String(), "secret store") {
		t.Errorf("it ended with %v and said: %s", a.ended, a.said)
	}
}
