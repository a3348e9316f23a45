package bearer_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

func TestEnsureKeysMakesOneRing(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	if _, err := bearer.LoadKeys(t.Context(), store, space); !errors.Is(err, secret.ErrNotFound) || wire.CodeOf(err) != wire.CodeNotFound {
		t.Fatalf("load before there are any: %v", err)
	}
	sets := make([]string, 8)
	var wg sync.WaitGroup
	for i := range sets {
		wg.Go(func() {
			keys, err := bearer.EnsureKeys(t.Context(), store, space)
			if err != nil {
				t.Error(err)
				return
			}
			set, _ := keys.JWKS(t.Context())
			sets[i] = string(set)
		})
	}
	wg.Wait()
	if len(slices.Compact(sets)) != 1 || sets[0] == "" {
		t.Errorf("several rings: %q", sets)
	}
	if got, want := bearer.KeysKey("dev"), "auth/space.646576/issuer.json"; got != want {
		t.Errorf("KeysKey = %q, want %q", got, want)
	}
	if _, err := bearer.EnsureKeys(t.Context(), store, "no space"); wire.CodeOf(err) != wire.CodeBadRequest {
		t.Errorf("a name that is no space: %v", err)
	}
	if _, err := bearer.EnsureKeys(t.Context(), secret.Refuse{}, space); wire.CodeOf(err) != wire.CodeUnavailable {
		t.Errorf("a store that does not answer: %v", err)
	}
}

func TestKeyRecordIsClosed(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	good, err := d.store.Get(t.Context(), bearer.KeysKey(space))
	if err != nil {
		t.Fatal(err)
	}
	rec := d.record(t)
	a, b := rec.Keys[0], rec.Keys[1]
	swap := func(old, new string) string { return strings.Replace(string(good), old, new, 1) }
	for name, data := range map[string]string{
		"version":         swap(`"ver":1`, `"ver":2`),
		"no version":      swap(`"ver":1,`, ``),
		"unknown field":   swap(`"ver":1`, `"ver":1,"more":1`),
		"doubled field":   swap(`"ver":1`, `"ver":1,"ver":1`),
		"other space":     swap("cotal:auth:main", "cotal:auth:other"),
		"other active":    swap(`"activeKid":"`+a.Kid, `"activeKid":"`+b.Kid),
		"other seed":      swap(a.Seed, b.Seed),
		"cut seed":        swap(a.Seed, a.Seed[:42]),
		"padded seed":     swap(a.Seed, a.Seed+"="),
		"same key twice":  strings.NewReplacer(b.Kid, a.Kid, b.Seed, a.Seed).Replace(string(good)),
		"no follower":     swap(string(good[bytes.Index(good, []byte(`,{"kid":"`+b.Kid)):]), "]}"),
		"no keys":         `{"ver":1,"issuer":"urn:cotal:auth:main","activeKid":"","keys":[]}`,
		"retired active":  swap(`"seed":"`+a.Seed+`"`, `"seed":"`+a.Seed+`","retired":"2026-01-01T00:00:00Z"`),
		"no creation":     swap(`"created":"`+a.Created.Format(time.RFC3339)+`"`, `"created":"0001-01-01T00:00:00Z"`),
		"cut in the half": string(good[:len(good)/2]),
		"empty":           "",
	} {
		if data == string(good) {
			t.Fatalf("%s changes nothing", name)
		}
		store := memstore.New()
		if err := store.Put(t.Context(), bearer.KeysKey(space), []byte(data)); err != nil {
			t.Fatal(err)
		}
		_, ensure := bearer.EnsureKeys(t.Context(), store, space)
		_, rotate := bearer.Rotate(t.Context(), store, space)
		_, replace := bearer.Replace(t.Context(), store, space)
		_, prune := bearer.Prune(t.Context(), store, space)
		for _, err := range []error{ensure, rotate, replace, prune} {
			named := strings.Contains(fmt.Sprint(err), bearer.KeysKey(space)) && !strings.Contains(fmt.Sprint(err), a.Seed[:8])
			if wire.CodeOf(err) != wire.CodeFailedPrecondition || !named {
				t.Errorf("%s: %v, want failed-precondition that names the record and shows no key", name, err)
			}
		}
		if kept, _ := store.Get(t.Context(), bearer.KeysKey(space)); string(kept) != data {
			t.Errorf("%s: the damaged record was replaced", name)
		}
	}
}

// gate is a store that can be shut or hang, and counts reads.
type gate struct {
	secret.Store
	shut, hang atomic.Bool
	reads      atomic.Int32
}

func (g *gate) Get(ctx context.Context, key string) ([]byte, error) {
	g.reads.Add(1)
	if g.hang.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if g.shut.Load() {
		return nil, errors.New("the store is away")
	}
	return g.Store.Get(ctx, key)
}

// TestKeysOutliveAnOutage: without its store the authority goes on for as long as a set may be cached, then refuses, and
// is back when the store is. Neither an outage nor unknown kids make it hammer the store.
func TestKeysOutliveAnOutage(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		store := &gate{Store: memstore.New()}
		keys, err := bearer.EnsureKeys(t.Context(), store, space)
		if err != nil {
			t.Fatal(err)
		}
		issuer, validator := bearer.NewIssuer(space, keys), bearer.NewValidator(space, keys, nil)
		token, _, err := issuer.Sign(t.Context(), claims(t), bearer.MaxHumanLife)
		if err != nil {
			t.Fatal(err)
		}
		stranger := newDesk(t)
		foreign := stranger.sign(t, claims(t))
		time.Sleep(10 * time.Second)
		store.reads.Store(0)
		for range 1000 {
			_, err := validator.Validate(t.Context(), foreign)
			checkReason(t, "unknown kid", err, trust.ReasonSignature)
		}
		if n := store.reads.Load(); n != 1 {
			t.Errorf("1000 unknown kids made %d reads", n)
		}

		store.shut.Store(true)
		time.Sleep(bearer.JWKSMaxAge - time.Second)
		store.reads.Store(0)
		for range 100 {
			if _, err := validator.Validate(t.Context(), token); err != nil {
				t.Fatalf("in the last second: %v", err)
			}
		}
		if n := store.reads.Load(); n != 1 {
			t.Errorf("100 checks in an outage made %d reads", n)
		}
		time.Sleep(10 * time.Second)
		for range 3 {
			_, _, sign := issuer.Sign(t.Context(), claims(t), bearer.MaxHumanLife)
			_, check := validator.Validate(t.Context(), token)
			_, set := keys.JWKS(t.Context())
			for _, err := range []error{sign, check, set} {
				if wire.CodeOf(err) != wire.CodeUnavailable || trust.ReasonOf(err) != trust.ReasonUnavailable {
					t.Errorf("in a long outage: %v", err)
				}
			}
			if _, _, err := validator.Peek(token); err != nil {
				t.Errorf("a peek that cannot know: %v", err)
			}
		}
		store.shut.Store(false)
		time.Sleep(5 * time.Second)
		if _, err := validator.Validate(t.Context(), token); err != nil {
			t.Errorf("when the store is back: %v", err)
		}
	})
}

// TestKeysOutliveAStoreThatHangs: one check in a while waits for the store, for two seconds; nobody waits longer than asked.
func TestKeysOutliveAStoreThatHangs(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		store := &gate{Store: memstore.New()}
		keys, err := bearer.EnsureKeys(t.Context(), store, space)
		if err != nil {
			t.Fatal(err)
		}
		issuer, validator := bearer.NewIssuer(space, keys), bearer.NewValidator(space, keys, nil)
		token, _, err := issuer.Sign(t.Context(), claims(t), bearer.MaxHumanLife)
		if err != nil {
			t.Fatal(err)
		}
		store.hang.Store(true)
		time.Sleep(time.Minute)
		at := time.Now()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if _, err := validator.Validate(t.Context(), token); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if _, err := validator.Validate(t.Context(), token); err != nil || time.Since(at) != 2*time.Second {
			t.Errorf("after %s: %v", time.Since(at), err)
		}
		time.Sleep(bearer.JWKSMaxAge)
		at = time.Now()
		for range 8 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := validator.Validate(ctx, token); err == nil {
					t.Error("a bearer is valid without keys")
				}
			})
		}
		wg.Wait()
		if took := time.Since(at); took != time.Second {
			t.Errorf("callers that would wait a second waited %s", took)
		}
	})
}

// TestPeekLearnsOfRotations: a process that is idle meanwhile does not refuse a kid that it cannot know of.
func TestPeekLearnsOfRotations(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		d := newDesk(t)
		for range 2 {
			if _, err := bearer.Rotate(t.Context(), d.store, space); err != nil {
				t.Fatal(err)
			}
			time.Sleep(bearer.MinPublished)
		}
		other, err := bearer.LoadKeys(t.Context(), d.store, space)
		if err != nil {
			t.Fatal(err)
		}
		token, _, err := bearer.NewIssuer(space, other).Sign(t.Context(), claims(t), bearer.MaxHumanLife)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := d.validator.Peek(token); err != nil {
			t.Errorf("peek before the record was read again: %v", err)
		}
		if _, err := d.validator.Validate(t.Context(), token); err != nil {
			t.Error(err)
		}
		if _, _, err := d.validator.Peek(newDesk(t).sign(t, claims(t))); trust.ReasonOf(err) != trust.ReasonSignature {
			t.Errorf("peek at an unknown kid afterwards: %v", err)
		}
	})
}

func TestParseJWKS(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	good, err := d.keys.JWKS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	set, err := bearer.ParseJWKS(good)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bearer.NewValidator(space, set, nil).Validate(t.Context(), d.sign(t, claims(t))); err != nil {
		t.Error(err)
	}
	if strings.Contains(string(good), `"d"`) || strings.Contains(string(good), d.record(t).Keys[0].Seed) {
		t.Errorf("the published set has a private half: %s", good)
	}
	weak := append([]byte{1}, make([]byte, 31)...)
	swap := func(old, new string) string { return strings.Replace(string(good), old, new, 1) }
	for name, data := range map[string]string{
		"empty": `{"keys":[]}`, "nothing": ``, "null": `{"keys":null}`, "no set": `[]`,
		"other type":  swap(`"OKP"`, `"EC"`),
		"other curve": swap(`"Ed25519"`, `"X25519"`),
		"other alg":   swap(`"EdDSA"`, `"HS256"`),
		"other use":   swap(`"sig"`, `"enc"`),
		"other kid":   swap(`"kid":"`, `"kid":"x`),
		"small order": `{"keys":[{"crv":"Ed25519","kty":"OKP","x":"` + base64.RawURLEncoding.EncodeToString(weak) +
			`","kid":"` + bearer.Thumbprint(weak) + `","alg":"EdDSA","use":"sig"}]}`,
		"doubled": swap(`"kty":"OKP"`, `"kty":"OKP","kty":"OKP"`),
	} {
		if _, err := bearer.ParseJWKS([]byte(data)); wire.CodeOf(err) != wire.CodeBadRequest {
			t.Errorf("%s: %v, want bad-request", name, err)
		}
	}
}

func TestThumbprintVector(t *testing.T) {
	t.Parallel()
	// RFC 8037 appendices A.2 and A.3.
	key, err := base64.RawURLEncoding.DecodeString("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := bearer.Thumbprint(key), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"; got != want {
		t.Errorf("Thumbprint = %q, want %q", got, want)
	}
}

func TestKeysAreNotPrinted(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	type holder struct {
		Open   *bearer.Keys
		hidden *bearer.Keys
		Issuer *bearer.Issuer
		value  bearer.Issuer
	}
	h := holder{d.keys, d.keys, d.issuer, *d.issuer}
	var logged bytes.Buffer
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "k", d.keys, "h", h, "i", d.issuer)
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "k", d.keys, "h", h, "i", d.issuer)
	text := logged.String() + string(mustJSON(t, h))
	for _, v := range []any{d.keys, d.issuer, *d.issuer, d.validator, h, &h, []*bearer.Keys{d.keys}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			text += fmt.Sprintf(verb, v) + "\n"
		}
	}
	seed := d.private(t, 0).Seed()
	for _, leak := range []string{
		d.record(t).Keys[0].Seed[:10], string(seed), fmt.Sprintf("%x", seed[:6]), fmt.Sprintf("%d %d %d", seed[0], seed[1], seed[2]),
		strings.Trim(fmt.Sprintf("%#v", seed[:4]), "[]byte{}"), base64.StdEncoding.EncodeToString(seed)[:10],
	} {
		if strings.Contains(text, leak) {
			t.Errorf("printing shows %q", leak)
		}
	}
	if !strings.Contains(text, "[keys of main]") {
		t.Errorf("printing shows %q", text)
	}
	if _, err := json.Marshal(d.keys); err != nil {
		t.Error(err)
	}
}
