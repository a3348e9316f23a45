package signer_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/signer/signertest"
)

func generate(t testing.TB, kind signer.Kind) *signer.Local {
	t.Helper()
	l, err := signer.Generate(kind)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLocal(t *testing.T) {
	for kind, first := range map[signer.Kind]string{signer.Operator: "O", signer.Account: "A", signer.User: "U"} {
		t.Run(first, func(t *testing.T) {
			signertest.Run(t, func(t testing.TB) signer.Signer {
				l := generate(t, kind)
				if !strings.HasPrefix(l.Public(), first) || l.Kind() != kind {
					t.Errorf("public key %q of kind %d, want the first letter %s", l.Public(), l.Kind(), first)
				}
				return l
			})
		})
	}
}

func TestLocalAgreesWithNkeys(t *testing.T) {
	l := generate(t, signer.Account)
	pair, err := nkeys.FromSeed(l.Seed().Reveal())
	if err != nil {
		t.Fatal(err)
	}
	want, err := pair.Sign([]byte("payload"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := l.Sign(t.Context(), []byte("payload"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("signature %x, %v, want that of nkeys %x", got, err, want)
	}
	public, err := pair.PublicKey()
	if err != nil || l.Public() != public {
		t.Errorf("public key %q, %v, want %q", l.Public(), err, public)
	}
	again, err := signer.FromSeed(l.Seed())
	if err != nil || again.Public() != l.Public() {
		t.Errorf("key read back = %v, %v, want %q", again, err, l.Public())
	}
}

func TestBadSeeds(t *testing.T) {
	good := generate(t, signer.User).Seed().Reveal()
	flipped := bytes.Clone(good)
	flipped[20] ^= 1
	for name, text := range map[string][]byte{
		"nothing": nil, "words": []byte("not a seed"), "cut": good[:40], "flipped": flipped,
		"public": []byte(generate(t, signer.User).Public()),
	} {
		l, err := signer.FromSeed(signer.NewSeed(text))
		if err == nil {
			t.Errorf("%s: made the signer %v", name, l)
		} else if len(text) > 0 && strings.Contains(err.Error(), string(text)) {
			t.Errorf("%s: the error quotes the seed", name)
		}
	}
	if _, err := signer.Generate(signer.Kind(3)); err == nil {
		t.Error("Generate of an unknown kind succeeded")
	}
	if _, err := signer.FromSeed(signer.Seed{}); err == nil {
		t.Error("FromSeed of the zero Seed succeeded")
	}
}

func TestNothingPrintsASeed(t *testing.T) {
	l := generate(t, signer.Operator)
	secret := l.Seed().Reveal()
	type pointer struct{ key *signer.Local }
	type value struct{ key signer.Local }
	type seeds struct {
		Exported signer.Seed
		hidden   signer.Seed
	}
	for _, v := range []any{l, *l, l.Seed(), pointer{l}, &pointer{l}, value{*l}, seeds{l.Seed(), l.Seed()}, []signer.Seed{l.Seed()}, map[signer.Kind]signer.Local{1: *l}} {
		signertest.CheckHidden(t, v, secret)
		var log bytes.Buffer
		for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
			slog.New(h).Info("value", "v", v)
		}
		if bytes.Contains(log.Bytes(), secret) {
			t.Errorf("the log of a %T shows the seed", v)
		}
	}
	if text, err := json.Marshal(seeds{Exported: l.Seed()}); err != nil || string(text) != `{"Exported":"[seed]"}` {
		t.Errorf("JSON of a seed = %s, %v", text, err)
	}
	if got := fmt.Sprint(l); got != "[signer "+l.Public()+"]" {
		t.Errorf("a signer prints as %q", got)
	}
}

func TestRefuse(t *testing.T) {
	var s signer.Refuse
	if sig, err := s.Sign(t.Context(), nil); !errors.Is(err, signer.ErrRefused) || sig != nil || s.Public() != "" {
		t.Errorf("Sign = %x, %v, Public = %q, want a refusal and no key", sig, err, s.Public())
	}
}
