package mint_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/secret/filestore"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// The re-run test binary plays a second process that revokes.
const (
	revokeDirEnv = "MINT_REVOKE_DIR"
	revokeSeed   = "MINT_REVOKE_COUNT"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(revokeDirEnv); dir != "" {
		if err := revokeInChild(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// revokeInChild revokes keys one by one and prints them.
func revokeInChild(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	n, err := strconv.Atoi(os.Getenv(revokeSeed))
	if err != nil {
		return err
	}
	store, err := filestore.New(dir)
	if err != nil {
		return err
	}
	a, err := mint.Open(ctx, store, nil)
	if err != nil {
		return err
	}
	for range n {
		key, err := signer.Generate(signer.User)
		if err != nil {
			return err
		}
		if _, err := a.Revoke(ctx, lab, mint.Revocation{UserKey: key.Public()}); err != nil {
			return err
		}
		fmt.Println(key.Public())
	}
	return nil
}

// TestProcessesLoseNoRevocation runs several processes that revoke in the same account.
func TestProcessesLoseNoRevocation(t *testing.T) {
	const each, processes = 8, 3
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	store, err := filestore.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	a := newMint(t, store)
	if _, err := a.AddSpace(t.Context(), lab, nil); err != nil {
		t.Fatal(err)
	}
	var want []string
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range processes {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), revokeDirEnv+"="+dir, revokeSeed+"="+strconv.Itoa(each))
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("child: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			var key string
			for _, c := range string(out) {
				if c == '\n' {
					want, key = append(want, key), ""
				} else {
					key += string(c)
				}
			}
		})
	}
	wg.Wait()
	rec, err := a.Account(t.Context(), lab)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]string, 0, len(rec.Revocations))
	for _, r := range rec.Revocations {
		got = append(got, r.UserKey)
	}
	slices.Sort(want)
	if len(want) != each*processes || !slices.Equal(got, want) {
		t.Errorf("the record revokes %d keys, the processes revoked %d", len(got), len(want))
	}
	if rec.Version != 1+each*processes {
		t.Errorf("version %d, want %d: every change counts once", rec.Version, 1+each*processes)
	}
	claims, err := jwt.DecodeAccountClaims(rec.JWT)
	if err != nil || len(claims.Revocations) != len(want) {
		t.Errorf("the JWT revokes %d keys, %v, want %d", len(claims.Revocations), err, len(want))
	}
}

func TestRevokeAtTheBroker(t *testing.T) {
	a, _ := withSpace(t)
	r := run(t, a)
	victim, other := user(t, a), user(t, a)
	_, dropped, err := r.connect(victim)
	if err != nil {
		t.Fatal(err)
	}
	kept, _, err := r.connect(other)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := a.Revoke(t.Context(), lab, mint.Revocation{UserKey: victim.Identity().UserKey, Expires: victim.Identity().Expires})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.push(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	<-dropped
	r.refused("a revoked credential", victim)
	if err := kept.FlushTimeout(time.Minute); err != nil {
		t.Errorf("the connection of another credential: %v", err)
	}
	if err := r.srv.Restart(t.Context(), r.trust()); err != nil {
		t.Fatal(err)
	}
	r.refused("a revoked credential after a restart", victim)
	r.accepted("another credential after a restart", other)
}

func TestRevokeAllUsers(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		a, _ := withSpace(t)
		user(t, a)
		rec, err := a.Revoke(t.Context(), lab, mint.Revocation{UserKey: trust.AllUsers})
		if err != nil || len(rec.Revocations) != 1 {
			t.Fatalf("Revoke all = %v, %v", rec.Revocations, err)
		}
		_, err = a.User(t.Context(), mint.UserRequest{Space: lab, Profile: trust.Agent, Principal: ada})
		if !errors.Is(err, wire.ErrPrecondition) {
			t.Errorf("minting in the revoked second = %v, want a refusal: the broker would refuse it", err)
		}
		time.Sleep(time.Second)
		user(t, a)
	})
}

func TestRevocationsArePruned(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		a, _ := withSpace(t)
		revoke := func(life time.Duration) int {
			t.Helper()
			rev := mint.Revocation{UserKey: generate(t, signer.User).Public()}
			if life > 0 {
				rev.Expires = time.Now().Add(life)
			}
			rec, err := a.Revoke(t.Context(), lab, rev)
			if err != nil {
				t.Fatal(err)
			}
			return len(rec.Revocations)
		}
		for i, step := range []struct {
			wait, life time.Duration
			want       int
		}{
			{0, time.Hour, 1},
			{0, 0, 2},                             // nothing known: kept as long as anything lives
			{30 * time.Minute, 24 * time.Hour, 3}, // nothing has expired
			{31 * time.Minute, 24 * time.Hour, 4}, // expired a minute ago: clocks differ
			{10 * time.Minute, 24 * time.Hour, 4}, // the first is gone, the new one came
			{26 * time.Hour, time.Hour, 2},        // only the one of unknown life is left
			{trust.MaxLifetime, time.Hour, 1},
		} {
			time.Sleep(step.wait)
			if got := revoke(step.life); got != step.want {
				t.Errorf("step %d: %d entries, want %d", i, got, step.want)
			}
		}
		time.Sleep(24 * time.Hour)
		rec, err := a.AddSpace(t.Context(), lab, nil) // any change prunes
		if err != nil || len(rec.Revocations) != 0 {
			t.Errorf("%d entries, %v, want none", len(rec.Revocations), err)
		}
	})
}

func TestRevokeTwiceChangesNothing(t *testing.T) {
	a, _ := withSpace(t)
	rev := mint.Revocation{UserKey: generate(t, signer.User).Public(), At: time.Now(), Expires: time.Now().Add(time.Hour)}
	first, err := a.Revoke(t.Context(), lab, rev)
	if err != nil {
		t.Fatal(err)
	}
	again, err := a.Revoke(t.Context(), lab, rev)
	if err != nil || again.Version != first.Version {
		t.Errorf("version %d after the second, %v, want %d", again.Version, err, first.Version)
	}
	earlier := rev
	earlier.At, earlier.Expires = rev.At.Add(-time.Hour), rev.Expires.Add(-time.Minute)
	back, err := a.Revoke(t.Context(), lab, earlier)
	if err != nil || back.Version != first.Version {
		t.Errorf("an earlier revocation moved a later one back: %v, %v", back.Revocations, err)
	}
}

func TestRevokeAllCoversSingleEntries(t *testing.T) {
	a, _ := withSpace(t)
	at := time.Now().Add(-time.Minute)
	if _, err := a.Revoke(t.Context(), lab, mint.Revocation{UserKey: generate(t, signer.User).Public(), At: at}); err != nil {
		t.Fatal(err)
	}
	ahead := mint.Revocation{UserKey: generate(t, signer.User).Public(), At: time.Now().Add(time.Minute)}
	rec, err := a.Revoke(t.Context(), lab, ahead, mint.Revocation{UserKey: trust.AllUsers})
	if err != nil || len(rec.Revocations) != 2 {
		t.Errorf("entries %v, %v, want all users and the one that reaches further", rec.Revocations, err)
	}
}

func TestRevokeRefuses(t *testing.T) {
	a, _ := withSpace(t)
	key := generate(t, signer.User).Public()
	for name, c := range map[string]struct {
		want error
		rev  mint.Revocation
	}{
		"no key":         {wire.ErrBadRequest, mint.Revocation{}},
		"an account key": {wire.ErrBadRequest, mint.Revocation{UserKey: generate(t, signer.Account).Public()}},
		"a pattern":      {wire.ErrBadRequest, mint.Revocation{UserKey: "U*"}},
		"far ahead":      {wire.ErrBadRequest, mint.Revocation{UserKey: key, At: time.Now().Add(2 * time.Hour)}},
	} {
		if _, err := a.Revoke(t.Context(), lab, mint.Revocation{UserKey: key}, c.rev); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	rec, err := a.Account(t.Context(), lab)
	if err != nil || len(rec.Revocations) != 0 {
		t.Errorf("refused calls left %v, %v", rec.Revocations, err)
	}
	if _, err := a.Revoke(t.Context(), "nowhere", mint.Revocation{UserKey: key}); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("unknown space: %v, want not-found", err)
	}
}

// TestRevocationLimit fills an account and looks at the size that a broker must take in one message.
func TestRevocationLimit(t *testing.T) {
	a, _ := withSpace(t)
	revs := make([]mint.Revocation, trust.MaxRevocations)
	for i := range revs {
		revs[i].UserKey = generate(t, signer.User).Public()
	}
	rec, err := a.Revoke(t.Context(), lab, revs...)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("account JWT with %d revocations: %d bytes", len(rec.Revocations), len(rec.JWT))
	if len(rec.JWT) > 1<<20-4096 {
		t.Errorf("account JWT of %d bytes does not fit a message of 1 MiB", len(rec.JWT))
	}
	_, err = a.Revoke(t.Context(), lab, mint.Revocation{UserKey: generate(t, signer.User).Public()})
	var we *wire.Error
	if !errors.Is(err, wire.ErrExhausted) || !errors.As(err, &we) || we.Details["allowed"] != trust.MaxRevocations {
		t.Errorf("one more = %v, want resource-exhausted with used and allowed", err)
	}
	r := run(t, a)
	r.accepted("a credential of a full account", user(t, a))
}
