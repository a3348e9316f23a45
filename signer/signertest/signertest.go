// Package signertest is the contract suite of [signer.Signer].
package signertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"sync"
	"testing"

	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/signer"
)

// Run checks that the signers made by open keep every promise of [signer.Signer]. Each call of open may return
// the same key or another.
func Run(t *testing.T, open func(t testing.TB) signer.Signer) {
	t.Run("public_key_is_an_nkey", func(t *testing.T) { testPublic(t, open(t)) })
	t.Run("signatures_verify", func(t *testing.T) { testSign(t, open(t)) })
	t.Run("ended_context_signs_nothing", func(t *testing.T) { testContext(t, open(t)) })
	t.Run("concurrent_use", func(t *testing.T) { testConcurrent(t, open(t)) })
	t.Run("printing_shows_no_seed", func(t *testing.T) { CheckHidden(t, open(t)) })
}

func testPublic(t *testing.T, s signer.Signer) {
	if _, err := nkeys.FromPublicKey(s.Public()); err != nil {
		t.Errorf("Public() = %q: %v", s.Public(), err)
	}
	if a, b := s.Public(), s.Public(); a != b {
		t.Errorf("Public() changed from %q to %q", a, b)
	}
}

func testSign(t *testing.T, s signer.Signer) {
	public := verifier(t, s)
	for _, payload := range [][]byte{nil, []byte("x"), []byte("header.payload"), bytes.Repeat([]byte("big "), 64<<10)} {
		kept := bytes.Clone(payload)
		sig, err := s.Sign(t.Context(), payload)
		if err != nil {
			t.Fatalf("sign %d bytes: %v", len(payload), err)
		}
		if err := public.Verify(kept, sig); err != nil {
			t.Errorf("signature of %d bytes: %v", len(payload), err)
		}
		if err := public.Verify(append(kept, 'x'), sig); err == nil {
			t.Errorf("signature of %d bytes also verifies a longer text", len(payload))
		}
		if !bytes.Equal(payload, kept[:len(payload)]) {
			t.Error("Sign changed its payload")
		}
	}
}

func testContext(t *testing.T, s signer.Signer) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if sig, err := s.Sign(ctx, []byte("x")); err == nil || sig != nil {
		t.Errorf("Sign with an ended context = %d bytes, %v, want an error", len(sig), err)
	}
}

func testConcurrent(t *testing.T, s signer.Signer) {
	public := verifier(t, s)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			payload := fmt.Appendf(nil, "payload %d", i)
			sig, err := s.Sign(t.Context(), payload)
			if err != nil {
				t.Errorf("sign %d: %v", i, err)
			} else if err := public.Verify(payload, sig); err != nil {
				t.Errorf("verify %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

func verifier(t *testing.T, s signer.Signer) nkeys.KeyPair {
	t.Helper()
	public, err := nkeys.FromPublicKey(s.Public())
	if err != nil {
		t.Fatal(err)
	}
	return public
}

// seedText matches what an nkey seed of any kind looks like, also written in hex.
var seedText = regexp.MustCompile(`\bS[ANCOUX][A-Z2-7]{40,}|(?i)\b53(41|4e|43|4f|55|58)([0-9a-f]{2}){40,}`)

// CheckHidden fails the test if any way of printing v, alone or nested in structs, slices, maps and pointers,
// shows something that looks like a seed, or any of the given secrets.
func CheckHidden(t testing.TB, v any, secrets ...[]byte) {
	t.Helper()
	type inner struct{ V any }
	type hidden struct {
		name string
		v    any
	}
	forms := []any{v, &v, []any{v}, map[string]any{"k": v}, inner{v}, &inner{v}, hidden{"n", v}, &hidden{"n", v}, []hidden{{"n", v}}, [1]any{v}}
	for _, form := range forms {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			checkText(t, fmt.Sprintf("%s of %T", verb, form), fmt.Sprintf(verb, form), secrets)
		}
		if text, err := json.Marshal(form); err == nil {
			checkText(t, fmt.Sprintf("JSON of %T", form), string(text), secrets)
		}
	}
}

func checkText(t testing.TB, how, text string, secrets [][]byte) {
	t.Helper()
	if seedText.MatchString(text) {
		t.Errorf("%s shows a seed", how)
	}
	for i, s := range secrets {
		for _, form := range []string{string(s), fmt.Sprintf("%x", s), fmt.Sprintf("%X", s), fmt.Sprintf("%d", s), fmt.Sprint(s)} {
			if len(s) > 0 && bytes.Contains([]byte(text), []byte(form)) {
				t.Errorf("%s shows secret %d", how, i)
			}
		}
	}
}
