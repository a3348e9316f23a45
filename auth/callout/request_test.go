package callout_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/nats-io/jwt/v2"

	"github.com/cotal-go/cotal/auth/callout"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust/mint"
)

func labWorld(t testing.TB) *world {
	t.Helper()
	store := memstore.New()
	return newWorld(t, must(mint.Init(context.Background(), store, nil))(t), store, "main")
}

// TestDecodeRequest reads what the library of the broker writes, and refuses what it would not.
func TestDecodeRequest(t *testing.T) {
	t.Parallel()
	w, o, ada := labWorld(t), newOrigin(t), newPerson(t, "ada")
	c := o.claims(t, w, ada, "token")
	c.ClientInformation.Tags = jwt.TagList{"a", "b"}
	c.TLS = &jwt.ClientTLS{Version: "1.3", Certs: jwt.StringList{"-----BEGIN"}}
	good := must(c.Encode(o.key))(t)
	q, verified, err := callout.DecodeRequest([]byte(good))
	if want := (callout.Question{Server: o.id, UserKey: c.UserNkey, Token: "token", Name: "ada"}); err != nil || !verified || q != want {
		t.Errorf("read %+v, verified %v, %v, want %+v", q, verified, err, want)
	}
	parts := strings.Split(good, ".")
	body := func(s string) string {
		return parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(s)) + "." + parts[2]
	}
	plain := string(must(base64.RawURLEncoding.DecodeString(parts[1]))(t))
	for name, token := range map[string]string{
		"empty":          "",
		"two_parts":      parts[0] + "." + parts[1],
		"four_parts":     good + ".x",
		"alg_none":       base64.RawURLEncoding.EncodeToString([]byte(`{"typ":"JWT","alg":"none"}`)) + "." + parts[1] + "." + parts[2],
		"old_alg":        base64.RawURLEncoding.EncodeToString([]byte(`{"typ":"jwt","alg":"ed25519"}`)) + "." + parts[1] + "." + parts[2],
		"not_base64":     parts[0] + ".!" + parts[1] + "." + parts[2],
		"not_json":       body("{"),
		"another_type":   body(strings.Replace(plain, "authorization_request", "authorization_response", 1)),
		"version_1":      body(strings.Replace(plain, `"version":2`, `"version":1`, 1)),
		"key_twice":      body(strings.Replace(plain, `"iss":`, `"iss":"N","iss":`, 1)),
		"key_other_case": body(strings.Replace(plain, `"iss":`, `"ISS":`, 1)),
		"too_large":      body(plain + strings.Repeat(" ", callout.MaxRequest)),
	} {
		if q, _, err := callout.DecodeRequest([]byte(token)); err == nil {
			t.Errorf("%s: read %+v, want an error", name, q)
		} else if strings.Contains(err.Error(), "token") {
			t.Errorf("%s: error %q holds content", name, err)
		}
	}
	for name, token := range map[string]string{
		"changed_claims":    body(strings.Replace(plain, `"ada"`, `"bob"`, 1)),
		"changed_signature": parts[0] + "." + parts[1] + "." + swapLast(parts[2]),
		"short_signature":   parts[0] + "." + parts[1] + "." + parts[2][:8],
		"another_issuer":    body(strings.Replace(plain, `"iss":"`+o.id, `"iss":"`+newOrigin(t).id, 1)),
		"issuer_is_a_user":  body(strings.Replace(plain, `"iss":"`+o.id, `"iss":"`+public(t, ada.key), 1)),
		"signed_by_a_user":  sign(t, ada.key, parts[0], strings.Replace(plain, `"iss":"`+o.id, `"iss":"`+public(t, ada.key), 1)),
		"no_issuer":         body(strings.Replace(plain, `"iss":"`+o.id, `"iss":"`, 1)),
	} {
		if _, verified, err := callout.DecodeRequest([]byte(token)); err != nil || verified {
			t.Errorf("%s: verified %v, %v, want it read and not verified", name, verified, err)
		}
	}
}

func TestClip(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "ada", strings.Repeat("x", callout.MaxText), strings.Repeat("é", callout.MaxText), "x" + strings.Repeat("漢", callout.MaxText)} {
		got := callout.Clip(text)
		if len(got) > callout.MaxText || !strings.HasPrefix(text, got) || !utf8.ValidString(got) || len(text) <= callout.MaxText && got != text {
			t.Errorf("clip of %d bytes = %d bytes, valid %v", len(text), len(got), utf8.ValidString(got))
		}
	}
}

// FuzzDecodeRequest holds that nothing panics, and that what is read and verified is what the library reads.
func FuzzDecodeRequest(f *testing.F) {
	w, o, ada := labWorld(f), newOrigin(f), newPerson(f, "ada")
	good := must(o.claims(f, w, ada, "token").Encode(o.key))(f)
	head, rest, _ := strings.Cut(good, ".")
	body, sig, _ := strings.Cut(rest, ".")
	plain := must(base64.RawURLEncoding.DecodeString(body))(f)
	f.Add([]byte(`{"typ":"JWT","alg":"ed25519-nkey"}`), plain, []byte(sig))
	f.Add([]byte(`{}`), []byte(`{"nats":{"type":"authorization_request","version":2}}`), []byte{})
	f.Add([]byte(head), []byte(strings.Repeat(`{"nats":`, 100)), []byte("."))
	f.Add([]byte(`{"typ":"JWT","alg":"ed25519-nkey"}`), bytes.Replace(plain, []byte(`"exp":`), []byte(`"exp":1e9,"x":`), 1), []byte(sig))
	f.Fuzz(func(t *testing.T, head, body, sig []byte) {
		for _, token := range [][]byte{
			body, []byte(base64.RawURLEncoding.EncodeToString(head) + "." + base64.RawURLEncoding.EncodeToString(body) + "." + string(sig)),
		} {
			q, verified, err := callout.DecodeRequest(token)
			if err != nil || !verified {
				continue
			}
			c, err := jwt.DecodeAuthorizationRequestClaims(string(token))
			if err != nil || c.Server.ID != q.Server || c.UserNkey != q.UserKey || c.ConnectOptions.Token != q.Token {
				t.Errorf("read %+v, the library %+v, %v", q, c, err)
			}
		}
	})
}

func TestQuestionsAgeByTheClockOfTheBroker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ours := newOrigin(t)
		l := newLab(t, ours)
		d := run(t, l.serve, l.o)
		ada := newPerson(t, "ada")
		token := l.w.bearer(t, ada, true, time.Minute)
		l.admits(t, d, ours, ada, token)
		c := ours.claims(t, l.w, ada, token)
		c.Expires = time.Now().Add(-2 * time.Second).Unix() // before it was issued, as Encode sets that to now
		sub := l.send(t, ours.ask(t, l.w, c))
		synctest.Wait()
		if s := d.Stats(); s.Dropped[callout.DropStale] != 1 {
			t.Errorf("dropped %v, want one as %q", s.Dropped, callout.DropStale)
		}
		if n, _, err := sub.Pending(); err != nil || n != 0 {
			t.Errorf("%d answers, %v", n, err)
		}
	})
}
