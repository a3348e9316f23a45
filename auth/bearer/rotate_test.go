package bearer_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestRotation walks through rotations on fake time. A validator elsewhere holds each published set for as long as it may, and one
// that was fetched at the worst moment; no bearer is ever refused before its end.
func TestRotation(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		d := newDesk(t)
		elsewhere := newFollower(t, d)
		living := map[string]time.Time{}
		signers := map[string]bool{}
		rotations := 0
		for start := time.Now(); time.Since(start) < time.Hour; time.Sleep(30 * time.Second) {
			token, signed, err := d.issuer.Sign(t.Context(), claims(t), bearer.MaxHumanLife)
			if err != nil {
				t.Fatal(err)
			}
			kid, _, err := d.validator.Peek(token)
			if err != nil {
				t.Fatal(err)
			}
			living[token], signers[kid] = signed.Expires, true
			elsewhere.refresh(t, d)
			for token, end := range living {
				if !time.Now().Before(end) {
					delete(living, token)
					continue
				}
				if _, err := d.validator.Validate(t.Context(), token); err != nil {
					t.Fatalf("after %s, %d rotations: %v", time.Since(start), rotations, err)
				}
				if _, err := elsewhere.validator().Validate(t.Context(), token); err != nil {
					t.Fatalf("elsewhere, after %s, %d rotations: %v", time.Since(start), rotations, err)
				}
			}
			// As often as is allowed, by another process.
			if _, err := bearer.Rotate(t.Context(), d.store, space); err == nil {
				rotations++
			} else if wire.CodeOf(err) != wire.CodeFailedPrecondition {
				t.Fatal(err)
			}
			if n := len(d.record(t).Keys); n > 6 {
				t.Fatalf("%d keys are published", n)
			}
		}
		if rotations < 10 || len(signers) < rotations {
			t.Errorf("%d rotations, %d keys signed", rotations, len(signers))
		}
	})
}

// follower is a validator that learns keys from the published set alone, as old as it may be.
type follower struct {
	set  *bearer.KeySet
	read time.Time
}

func newFollower(t *testing.T, d *desk) *follower {
	f := &follower{}
	f.refresh(t, d)
	return f
}

func (f *follower) refresh(t *testing.T, d *desk) {
	t.Helper()
	if f.set != nil && time.Since(f.read) < bearer.JWKSMaxAge {
		return
	}
	data, err := d.keys.JWKS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if f.set, err = bearer.ParseJWKS(data); err != nil {
		t.Fatal(err)
	}
	f.read = time.Now()
}

func (f *follower) validator() *bearer.Validator { return bearer.NewValidator(space, f.set, nil) }

// TestRotateStates: the one that follows signs at once, and the one before stays until its bearers have ended.
func TestRotateStates(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		d := newDesk(t)
		before := d.record(t)
		old := d.sign(t, claims(t))
		kid, err := bearer.Rotate(t.Context(), d.store, space)
		if err != nil {
			t.Fatal(err)
		}
		after := d.record(t)
		if kid != before.Keys[1].Kid || after.ActiveKid != kid || len(after.Keys) != 3 || after.Keys[2].Kid != before.ActiveKid ||
			after.Keys[2].Retired == nil {
			t.Fatalf("from %+v to %+v", before, after)
		}
		fresh, err := bearer.LoadKeys(t.Context(), d.store, space)
		if err != nil {
			t.Fatal(err)
		}
		token, _, err := bearer.NewIssuer(space, fresh).Sign(t.Context(), claims(t), bearer.MaxHumanLife)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := d.validator.Peek(token); err != nil || got != kid {
			t.Errorf("signed by %q, %v, want %q", got, err, kid)
		}
		if _, err := d.validator.Validate(t.Context(), old); err != nil {
			t.Errorf("a bearer of the key before: %v", err)
		}
		_, err = bearer.Rotate(t.Context(), d.store, space)
		if wire.CodeOf(err) != wire.CodeFailedPrecondition || !strings.Contains(err.Error(), "rotate again in 6m0s") {
			t.Errorf("a second rotation at once: %v", err)
		}
		time.Sleep(bearer.MinPublished - time.Second)
		if _, err = bearer.Rotate(t.Context(), d.store, space); !strings.Contains(fmt.Sprint(err), "again in 1s") {
			t.Errorf("a second before its time: %v", err)
		}
		time.Sleep(bearer.KeepRetired - bearer.MinPublished)
		if n, err := bearer.Prune(t.Context(), d.store, space); n != 0 || err != nil {
			t.Errorf("a second before its time, %d keys were pruned, %v", n, err)
		}
		time.Sleep(time.Second)
		if n, err := bearer.Prune(t.Context(), d.store, space); n != 1 || err != nil || len(d.record(t).Keys) != 2 {
			t.Errorf("%d keys were pruned, %v", n, err)
		}
		if d.record(t).ActiveKid != kid {
			t.Error("pruning took the key that signs")
		}
		if _, err := bearer.Prune(t.Context(), d.store, space); err != nil {
			t.Error(err)
		}
	})
}

// TestRotateWhenTheClockWasAhead: the machine that made the keys was fast, and a record that cannot be read back is not written.
func TestRotateWhenTheClockWasAhead(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	data, err := d.store.Get(t.Context(), bearer.KeysKey(space))
	if err != nil {
		t.Fatal(err)
	}
	created := d.record(t).Keys[0].Created
	ahead := strings.ReplaceAll(string(data), created.Format(time.RFC3339), created.Add(time.Minute).Format(time.RFC3339))
	if err := d.store.Put(t.Context(), bearer.KeysKey(space), []byte(ahead)); err != nil {
		t.Fatal(err)
	}
	if _, err := bearer.Rotate(t.Context(), d.store, space); err != nil {
		t.Fatal(err)
	}
	if _, err := bearer.LoadKeys(t.Context(), d.store, space); err != nil {
		t.Error(err)
	}
}

// TestRotatorsRace: of eight at once one rotates. No key is lost, and what was signed is valid.
func TestRotatorsRace(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	before := d.record(t)
	token := d.sign(t, claims(t))
	var done, refused atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			switch _, err := bearer.Rotate(t.Context(), d.store, space); wire.CodeOf(err) {
			case "":
				done.Add(1)
			case wire.CodeFailedPrecondition:
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	after := d.record(t)
	kept := len(after.Keys) == 3 && after.ActiveKid == before.Keys[1].Kid && after.Keys[2].Kid == before.ActiveKid
	if done.Load() != 1 || refused.Load() != 7 || !kept {
		t.Errorf("%d rotated, %d were refused, from %+v to %+v", done.Load(), refused.Load(), before, after)
	}
	fresh, err := bearer.LoadKeys(t.Context(), d.store, space)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bearer.NewValidator(space, fresh, nil).Validate(t.Context(), token); err != nil {
		t.Error(err)
	}
}

// TestReplaceForgetsAStolenKey: what a thief signs is refused within 30 s, wherever the record is read.
func TestReplaceForgetsAStolenKey(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		d := newDesk(t)
		header, payload := d.good(t)
		stolen := forge(t, d.private(t, 0), header, payload)
		if _, err := d.validator.Validate(t.Context(), stolen); err != nil {
			t.Fatal(err)
		}
		kid, err := bearer.Replace(t.Context(), d.store, space)
		if err != nil || kid != d.record(t).ActiveKid || kid == header["kid"] || len(d.record(t).Keys) != 2 {
			t.Fatalf("replaced: %q, %v", kid, err)
		}
		time.Sleep(30 * time.Second)
		_, err = d.validator.Validate(t.Context(), stolen)
		checkReason(t, "a bearer of the stolen key", err, trust.ReasonSignature)
		got, _, err := d.validator.Peek(d.sign(t, claims(t)))
		if err != nil || got != kid {
			t.Errorf("the issuer signs with %q, %v, want %q", got, err, kid)
		}
	})
}
