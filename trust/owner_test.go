package trust_test

import (
	"bytes"
	"context"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cotal-go/cotal/internal/archtest"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// counting is the secret 00 01 … 1f of the frozen vector.
func counting(t testing.TB) ([]byte, trust.OwnerSecret) {
	t.Helper()
	key := make([]byte, 32)
	for i := range key {
		key[i] = byte(i)
	}
	s, err := trust.NewOwnerSecret(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, s
}

func TestOwnerVectors(t *testing.T) {
	t.Parallel()
	_, s := counting(t)
	for _, c := range []struct{ issuer, sub, want string }{
		{"https://idp.example", "user-1", "u_g5mclrofwa6pirb3p4yeigemze"},
		// The rest was computed by Node from JSON.stringify; they guard the escapes where node is missing.
		{"https://idp.example", "<a href=\"x\">&\\", "u_dba3q6l772erm2cmm2woq5yq5a"},
		{"https://idp.example", "\x00\x01\b\t\n\v\f\r\x1f\x7f", "u_7lv5wlz6y3ofr3zm26jp52nz4m"},
		{"https://idp.example", "\u2028\u2029\u00e9\U0001f600\ufffd", "u_oshkppf5sn4mvmkfbvnnlbgmqu"},
	} {
		got, err := s.Owner(c.issuer, c.sub)
		if err != nil || got != c.want {
			t.Errorf("Owner(%q, %q) = %q, %v, want %q", c.issuer, c.sub, got, err, c.want)
		}
		if err := trust.ValidateOwner(got); err != nil {
			t.Error(err)
		}
	}
}

func TestOwnerRefuses(t *testing.T) {
	t.Parallel()
	_, s := counting(t)
	for _, c := range []struct{ issuer, sub string }{
		{"", "user-1"}, {"https://idp.example", ""}, {"https://idp.example\xff", "user-1"}, {"https://idp.example", "\xed\xa0\x80"},
	} {
		if got, err := s.Owner(c.issuer, c.sub); got != "" || wire.CodeOf(err) != wire.CodeBadRequest {
			t.Errorf("Owner(%q, %q) = %q, %v, want bad-request", c.issuer, c.sub, got, err)
		}
	}
	if got, err := (trust.OwnerSecret{}).Owner("https://idp.example", "user-1"); got != "" || wire.CodeOf(err) != wire.CodeFailedPrecondition {
		t.Errorf("the zero secret derived %q, %v", got, err)
	}
	for _, n := range []int{0, 16, 31, 33, 64} {
		if _, err := trust.NewOwnerSecret(make([]byte, n)); wire.CodeOf(err) != wire.CodeBadRequest {
			t.Errorf("a secret of %d bytes was taken: %v", n, err)
		}
	}
}

// TestOwnersStayApart: the pair is derived, not the joined text, and each space has its own owners.
func TestOwnersStayApart(t *testing.T) {
	t.Parallel()
	_, one := counting(t)
	two, err := trust.GenerateOwnerSecret()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for name, s := range map[string]trust.OwnerSecret{"one": one, "two": two} {
		for _, p := range [][2]string{{"a", "bc"}, {"ab", "c"}, {`a","b`, "c"}, {"a", `b","c`}, {"A", "bc"}, {"a", "bc "}} {
			got, err := s.Owner(p[0], p[1])
			if err != nil {
				t.Fatal(err)
			}
			if other, twice := seen[got]; twice {
				t.Errorf("%s %q and %s are both %q", name, p, other, got)
			}
			seen[got] = fmt.Sprintf("%s %q", name, p)
		}
	}
}

func TestValidateOwner(t *testing.T) {
	t.Parallel()
	const good = "u_g5mclrofwa6pirb3p4yeigemze"
	if err := trust.ValidateOwner(good); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		"", "local", "u_", good[2:], good[:27], good + "a", "U" + good[1:], "u-" + good[2:], strings.ToUpper(good), good[:27] + "f",
		good[:27] + "z", good[:27] + "2",
		good[:27] + "=", good[:27] + "\n", good[:10] + "\n" + good[11:], good[:10] + "1" + good[11:], good + "\n", " " + good, "p_" + good[2:],
	} {
		if err := trust.ValidateOwner(bad); wire.CodeOf(err) != wire.CodeBadRequest {
			t.Errorf("owner %q: %v, want bad-request", bad, err)
		}
	}
	for i, c := range "abcdefghijklmnopqrstuvwxyz234567" {
		if err := trust.ValidateOwner(good[:27] + string(c)); (err == nil) != (i%4 == 0) {
			t.Errorf("last character %q: %v", c, err)
		}
	}
}

// script derives owners in JavaScript: one line in, one line out.
const script = `
const { createHmac } = require('node:crypto')
const alphabet = 'abcdefghijklmnopqrstuvwxyz234567'
const input = JSON.parse(require('node:fs').readFileSync(0, 'utf8'))
const key = Buffer.from(input.key, 'hex')
for (const [issuer, sub] of input.pairs.map(p => p.map(h => Buffer.from(h, 'hex').toString('utf8')))) {
  const mac = createHmac('sha256', key).update('cotal-owner-v1:' + JSON.stringify([issuer, sub])).digest().subarray(0, 16)
  let bits = ''
  for (const b of mac) bits += b.toString(2).padStart(8, '0')
  let out = 'u_'
  for (let i = 0; i < bits.length; i += 5) out += alphabet[parseInt(bits.slice(i, i + 5).padEnd(5, '0'), 2)]
  console.log(out)
}`

// TestOwnerAgreesWithJavaScript derives the owners of many strange strings here and with JSON.stringify itself.
func TestOwnerAgreesWithJavaScript(t *testing.T) {
	t.Parallel()
	bin, err := exec.LookPath("node")
	if err != nil {
		archtest.Skip(t, "node is not installed")
	}
	key, s := counting(t)
	pairs := strangePairs()
	input := struct {
		Key   string      `json:"key"`
		Pairs [][2]string `json:"pairs"`
	}{Key: hex.EncodeToString(key)}
	for _, p := range pairs {
		input.Pairs = append(input.Pairs, [2]string{hex.EncodeToString([]byte(p[0])), hex.EncodeToString([]byte(p[1]))})
	}
	stdin, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "-e", script)
	cmd.WaitDelay = 5 * time.Second
	cmd.Stdin, cmd.Stderr = bytes.NewReader(stdin), t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(out))
	if len(lines) != len(pairs) {
		t.Fatalf("node derived %d owners of %d", len(lines), len(pairs))
	}
	for i, p := range pairs {
		if got, err := s.Owner(p[0], p[1]); err != nil || got != lines[i] {
			t.Errorf("Owner(%q, %q) = %q, %v, JavaScript says %q", p[0], p[1], got, err, lines[i])
		}
	}
}

// strangePairs has every character below U+0100 and around the surrogates, and random strings of all planes.
func strangePairs() [][2]string {
	pairs := [][2]string{{"https://idp.example", "user-1"}}
	add := func(s string) { pairs = append(pairs, [2]string{"https://idp.example/" + s, s}) }
	for r := range rune(0x100) {
		add(string(r))
	}
	for _, r := range []rune{0x2027, 0x2028, 0x2029, 0x202a, 0xd7ff, 0xe000, 0xfeff, 0xfffd, 0xfffe, 0xffff, 0x10000, 0x1f600, 0x10ffff} {
		add(string(r))
		add("a" + string(r) + "\\" + string(r))
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var b strings.Builder
		for range 1 + r.IntN(12) {
			c := rune(r.IntN(0x110000))
			if r.IntN(2) == 0 {
				c = rune(r.IntN(0x80))
			}
			if utf8.ValidRune(c) {
				b.WriteRune(c)
			}
		}
		if b.Len() > 0 {
			add(b.String())
		}
	}
	return pairs
}

func TestEnsureOwnerSecretMakesOne(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	if _, err := trust.LoadOwnerSecret(t.Context(), store, space); !errors.Is(err, secret.ErrNotFound) || wire.CodeOf(err) != wire.CodeNotFound {
		t.Fatalf("load before there is one: %v", err)
	}
	owners := make([]string, 8)
	var wg sync.WaitGroup
	for i := range owners {
		wg.Go(func() {
			s, err := trust.EnsureOwnerSecret(t.Context(), store, space)
			if err != nil {
				t.Error(err)
				return
			}
			owners[i], _ = s.Owner("https://idp.example", "user-1")
		})
	}
	wg.Wait()
	loaded, err := trust.LoadOwnerSecret(t.Context(), store, space)
	if err != nil {
		t.Fatal(err)
	}
	want, err := loaded.Owner("https://idp.example", "user-1")
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range owners {
		if got != want {
			t.Errorf("one of the callers got another secret: owner %q, want %q", got, want)
		}
	}
	if got, want := trust.OwnerSecretKey("dev"), "auth/space.646576/owner-secret.json"; got != want {
		t.Errorf("OwnerSecretKey = %q, want %q", got, want)
	}
	if _, err := trust.EnsureOwnerSecret(t.Context(), store, "no space"); wire.CodeOf(err) != wire.CodeBadRequest {
		t.Errorf("a name that is no space: %v", err)
	}
	if _, err := trust.EnsureOwnerSecret(t.Context(), secret.Refuse{}, space); wire.CodeOf(err) != wire.CodeUnavailable {
		t.Errorf("a store that does not answer: %v", err)
	}
}

func TestOwnerRecordIsClosed(t *testing.T) {
	t.Parallel()
	const text = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	name := trust.OwnerSecretKey(space)
	for _, c := range []struct {
		record string
		ok     bool
	}{
		{`{"ver":1,"secretB64":"` + text + `"}`, true},
		{`{"ver":2,"secretB64":"` + text + `"}`, false},
		{`{"secretB64":"` + text + `"}`, false},
		{`{"ver":1}`, false},
		{`{"ver":1,"secretB64":null}`, false},
		{`{"ver":1,"secretB64":"` + text + `","more":1}`, false},
		{`{"ver":1,"secretB64":"` + text + `","secretB64":"` + text + `"}`, false},
		{`{"ver":1,"SecretB64":"` + text + `"}`, false},
		{`{"ver":1,"secretB64":"` + text[:40] + `"}`, false},
		{`{"ver":1,"secretB64":"` + strings.TrimRight(text, "=") + `"}`, false},
		{`{"ver":1,"secretB64":"` + text[:43] + `\n="}`, false},
		{`{"ver":1,"secretB64":"` + text[:42] + `9="}`, false},
		{`{"ver":1,"secretB64":"` + text, false},
		{text, false},
		{"", false},
	} {
		store := memstore.New()
		if err := store.Put(t.Context(), name, []byte(c.record)); err != nil {
			t.Fatal(err)
		}
		s, err := trust.EnsureOwnerSecret(t.Context(), store, space)
		if c.ok {
			if got, _ := s.Owner("https://idp.example", "user-1"); err != nil || got != "u_g5mclrofwa6pirb3p4yeigemze" {
				t.Errorf("record %q: owner %q, %v", c.record, got, err)
			}
			continue
		}
		if wire.CodeOf(err) != wire.CodeFailedPrecondition || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), text[:20]) {
			t.Errorf("record %q: %v, want failed-precondition that names the record and not its content", c.record, err)
		}
		if kept, _ := store.Get(t.Context(), name); string(kept) != c.record {
			t.Errorf("a damaged record was replaced by %q", kept)
		}
	}
}

func TestOwnerSecretIsNotPrinted(t *testing.T) {
	t.Parallel()
	key, s := counting(t)
	type holder struct {
		Open   trust.OwnerSecret
		hidden trust.OwnerSecret
	}
	var logged bytes.Buffer
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "s", s, "h", holder{s, s})
	encoded, err := json.Marshal(holder{s, s})
	if err != nil {
		t.Fatal(err)
	}
	text := logged.String() + string(encoded)
	for _, v := range []any{s, &s, holder{s, s}, &holder{s, s}, []trust.OwnerSecret{s}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			text += fmt.Sprintf(verb, v) + "\n"
		}
	}
	for _, leak := range []string{
		string(key[1:]), hex.EncodeToString(key[:8]), "AAECAwQF", base32.StdEncoding.EncodeToString(key)[:12], "0x1, 0x2, 0x3", "1 2 3 4",
	} {
		if strings.Contains(text, leak) {
			t.Errorf("printing shows %q in %q", leak, text)
		}
	}
	if !strings.Contains(text, "[owner secret]") {
		t.Errorf("printing shows %q", text)
	}
}

func FuzzValidateOwner(f *testing.F) {
	_, s := counting(f)
	f.Add("u_g5mclrofwa6pirb3p4yeigemze", "user-1")
	f.Add("u_g5mclrofwa6pirb3p4yeigemzf", "\u2028")
	f.Fuzz(func(t *testing.T, text, sub string) {
		if trust.ValidateOwner(text) == nil && !(wire.Principal{Owner: text, Actor: "a"}).OwnerKnown() {
			t.Errorf("owner %q is none that the contract knows", text)
		}
		owner, err := s.Owner("https://idp.example", sub)
		if err != nil {
			return
		}
		if err := trust.ValidateOwner(owner); err != nil {
			t.Errorf("owner of %q: %v", sub, err)
		}
	})
}
