// Package secrettest is the contract suite of [secret.Store]. A body passes it in one line:
//
//	func TestStore(t *testing.T) {
//		secrettest.Run(t, func(t testing.TB) secret.Store { return memstore.New() })
//	}
package secrettest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cotal-go/cotal/secret"
)

// Run checks that the stores made by open keep every promise of [secret.Store], and of [secret.Lister] if
// they implement it. Each subtest opens its own, empty store; open registers its own clean-up.
func Run(t *testing.T, open func(t testing.TB) secret.Store) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s secret.Store)
	}{
		{"absent_is_its_own_error", testAbsent},
		{"values_round_trip", testRoundTrip},
		{"values_are_copied", testCopies},
		{"create_decides_one_winner", testCreate},
		{"swap_compares_bytes", testSwap},
		{"swaps_lose_nothing", testSwapRace},
		{"creates_race_to_one", testCreateRace},
		{"keys_do_not_shadow", testKeys},
		{"hostile_keys_are_refused", testHostileKeys},
		{"oversize_is_refused", testOversize},
		{"ended_context_does_nothing", testContext},
		{"errors_name_keys_not_values", testErrors},
		{"list_is_sorted_and_exact", testList},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, open(t)) })
	}
}

func testAbsent(t *testing.T, s secret.Store) {
	ctx := t.Context()
	_, get := s.Get(ctx, "a/b")
	for name, err := range map[string]error{
		"get": get, "delete": s.Delete(ctx, "a/b"), "swap": s.CompareAndSwap(ctx, "a/b", nil, []byte("x")),
	} {
		if !errors.Is(err, secret.ErrNotFound) {
			t.Errorf("%s of an absent key = %v, want ErrNotFound", name, err)
		}
	}
	want(t, s, "a/b", nil)
}

func testRoundTrip(t *testing.T, s secret.Store) {
	ctx := t.Context()
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for name, value := range map[string][]byte{"empty": {}, "text": []byte("SUA…\n"), "bytes": all, "big": bytes.Repeat(all, 4<<10)} {
		if err := s.Put(ctx, "v/"+name, value); err != nil {
			t.Fatalf("put %s: %v", name, err)
		}
		want(t, s, "v/"+name, value)
	}
	if err := s.Put(ctx, "v/text", []byte("second")); err != nil {
		t.Fatal(err)
	}
	want(t, s, "v/text", []byte("second"))
	if err := s.Delete(ctx, "v/text"); err != nil {
		t.Fatal(err)
	}
	want(t, s, "v/text", nil)
	if err := s.Create(ctx, "v/text", []byte("third")); err != nil {
		t.Fatalf("create after delete: %v", err)
	}
	want(t, s, "v/text", []byte("third"))
}

func testCopies(t *testing.T, s secret.Store) {
	value := []byte("original")
	if err := s.Put(t.Context(), "k", value); err != nil {
		t.Fatal(err)
	}
	value[0] = 'X'
	want(t, s, "k", []byte("original"))
	got, err := s.Get(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	got[0] = 'Y'
	want(t, s, "k", []byte("original"))
}

func testCreate(t *testing.T, s secret.Store) {
	ctx := t.Context()
	if err := s.Create(ctx, "k", []byte("first")); err != nil {
		t.Fatal(err)
	}
	if err := s.Create(ctx, "k", []byte("second")); !errors.Is(err, secret.ErrExists) {
		t.Errorf("second create = %v, want ErrExists", err)
	}
	want(t, s, "k", []byte("first"))
	if err := s.Create(ctx, "empty", nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Create(ctx, "empty", nil); !errors.Is(err, secret.ErrExists) {
		t.Errorf("second create of an empty value = %v, want ErrExists", err)
	}
}

func testSwap(t *testing.T, s secret.Store) {
	ctx := t.Context()
	if err := s.Put(ctx, "k", []byte("one")); err != nil {
		t.Fatal(err)
	}
	for _, old := range []string{"two", "", "on", "one ", "ONE"} {
		if err := s.CompareAndSwap(ctx, "k", []byte(old), []byte("x")); !errors.Is(err, secret.ErrConflict) {
			t.Errorf("swap from %q = %v, want ErrConflict", old, err)
		}
	}
	want(t, s, "k", []byte("one"))
	if err := s.CompareAndSwap(ctx, "k", []byte("one"), []byte("two")); err != nil {
		t.Fatal(err)
	}
	want(t, s, "k", []byte("two"))
}

func testSwapRace(t *testing.T, s secret.Store) {
	const workers, each = 8, 10
	if err := s.Create(t.Context(), "count", []byte("0")); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				if err := Increment(t.Context(), s, "count"); err != nil {
					t.Errorf("increment: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	want(t, s, "count", []byte(strconv.Itoa(workers*each)))
}

// Increment adds one to the decimal number under key by compare and swap, trying again for as long as others
// win. Bodies whose store is shared by processes use it to race them.
func Increment(ctx context.Context, s secret.Store, key string) error {
	for {
		old, err := s.Get(ctx, key)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(old))
		if err != nil {
			return err
		}
		err = s.CompareAndSwap(ctx, key, old, strconv.AppendInt(nil, int64(n+1), 10))
		if !errors.Is(err, secret.ErrConflict) {
			return err
		}
	}
}

func testCreateRace(t *testing.T, s secret.Store) {
	results := make([]error, 16)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() { results[i] = s.Create(t.Context(), "race/one", []byte{byte('a' + i)}) })
	}
	wg.Wait()
	won := -1
	for i, err := range results {
		switch {
		case err == nil && won < 0:
			won = i
		case err == nil:
			t.Errorf("creates %d and %d both won", won, i)
		case !errors.Is(err, secret.ErrExists):
			t.Errorf("create %d = %v, want ErrExists", i, err)
		}
	}
	if won < 0 {
		t.Fatal("no create won")
	}
	want(t, s, "race/one", []byte{byte('a' + won)})
}

func testKeys(t *testing.T, s secret.Store) {
	keys := []string{"a.json", "a.jsonx", "a/b", "a/bc", "a/b.c", "ab", "x/y/z/w", "x/y/z-w", "A.json"}
	for _, k := range keys {
		if err := s.Create(t.Context(), k, []byte("value of "+k)); err != nil {
			t.Fatalf("create %q: %v", k, err)
		}
	}
	for _, k := range keys {
		want(t, s, k, []byte("value of "+k))
	}
}

func testHostileKeys(t *testing.T, s secret.Store) {
	ctx := t.Context()
	for _, key := range []string{"", "/etc/passwd", "../up", "a/../../up", "a//b", "a/", ".hidden", "a/.hidden", `..\up`, "a\x00b", "a\nb", "C:x"} {
		_, get := s.Get(ctx, key)
		for name, err := range map[string]error{
			"get": get, "put": s.Put(ctx, key, nil), "create": s.Create(ctx, key, nil),
			"swap": s.CompareAndSwap(ctx, key, nil, nil), "delete": s.Delete(ctx, key),
		} {
			if err == nil || errors.Is(err, secret.ErrNotFound) {
				t.Errorf("%s %q = %v, want a refusal", name, key, err)
			}
		}
	}
}

func testOversize(t *testing.T, s secret.Store) {
	ctx, big := t.Context(), make([]byte, secret.MaxValue+1)
	if err := s.Put(ctx, "k", []byte("small")); err != nil {
		t.Fatal(err)
	}
	if s.Put(ctx, "k", big) == nil || s.Create(ctx, "k2", big) == nil || s.CompareAndSwap(ctx, "k", []byte("small"), big) == nil {
		t.Errorf("a value above %d bytes was taken", secret.MaxValue)
	}
	want(t, s, "k", []byte("small"))
	want(t, s, "k2", nil)
}

func testContext(t *testing.T, s secret.Store) {
	if err := s.Put(t.Context(), "k", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, get := s.Get(ctx, "k")
	for name, err := range map[string]error{
		"get": get, "put": s.Put(ctx, "k", nil), "create": s.Create(ctx, "n", nil),
		"swap": s.CompareAndSwap(ctx, "k", []byte("kept"), nil), "delete": s.Delete(ctx, "k"),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with an ended context = %v, want context.Canceled", name, err)
		}
	}
	want(t, s, "k", []byte("kept"))
	want(t, s, "n", nil)
}

func testErrors(t *testing.T, s secret.Store) {
	const hush = "SUAHUSHHUSH"
	ctx := t.Context()
	if err := s.Put(ctx, "some/key", []byte(hush)); err != nil {
		t.Fatal(err)
	}
	_, get := s.Get(ctx, "some/other")
	for name, err := range map[string]error{
		"create": s.Create(ctx, "some/key", []byte(hush)), "swap": s.CompareAndSwap(ctx, "some/key", []byte(hush+"1"), []byte(hush+"2")), "get": get,
	} {
		if err == nil || !strings.Contains(err.Error(), `"some/`) || strings.Contains(err.Error(), hush) {
			t.Errorf("%s error %q must quote the key and not show the value", name, err)
		}
	}
}

func testList(t *testing.T, s secret.Store) {
	l, ok := s.(secret.Lister)
	if !ok {
		t.Logf("%T lists nothing; that is allowed", s)
		return
	}
	for _, k := range []string{"auth/account.62.json", "auth/account.61.json", "auth/accounts", "auth/operator.nk", "space.61/agent.creds"} {
		if err := s.Put(t.Context(), k, []byte(k)); err != nil {
			t.Fatal(err)
		}
	}
	for prefix, keys := range map[string][]string{
		"auth/account.": {"auth/account.61.json", "auth/account.62.json"},
		"auth/":         {"auth/account.61.json", "auth/account.62.json", "auth/accounts", "auth/operator.nk"},
		"":              {"auth/account.61.json", "auth/account.62.json", "auth/accounts", "auth/operator.nk", "space.61/agent.creds"},
		"none/":         {},
	} {
		got, err := l.List(t.Context(), prefix)
		if err != nil || !slices.Equal(got, keys) {
			t.Errorf("list %q = %q, %v, want %q", prefix, got, err, keys)
		}
	}
}

// want checks the value under key; nil means absent.
func want(t *testing.T, s secret.Store, key string, value []byte) {
	t.Helper()
	got, err := s.Get(context.WithoutCancel(t.Context()), key)
	switch {
	case value == nil && !errors.Is(err, secret.ErrNotFound):
		t.Errorf("get %q = %d bytes, %v, want ErrNotFound", key, len(got), err)
	case value != nil && err != nil:
		t.Errorf("get %q: %v", key, err)
	case value != nil && !bytes.Equal(got, value):
		t.Errorf("get %q = %d bytes that differ from the %d written", key, len(got), len(value))
	}
}
