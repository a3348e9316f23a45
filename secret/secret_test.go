package secret_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/secret"
)

func TestCheckKey(t *testing.T) {
	good := []string{"a", "auth/broker.json", "auth/space.6d61696e/sign.agent.nk", "A_b-9.x", strings.Repeat("a", secret.MaxSegment)}
	for _, key := range good {
		if err := secret.CheckKey(key); err != nil {
			t.Errorf("CheckKey(%q) = %v, want nil", key, err)
		}
	}
	bad := []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", ".hidden", "a/.b", `a\b`, "a b", "a\x00b", "a:b", "ä",
		strings.Repeat("a", secret.MaxSegment+1), strings.Repeat("abcdefg/", 100) + "x",
	}
	for _, key := range bad {
		if err := secret.CheckKey(key); err == nil {
			t.Errorf("CheckKey(%q) = nil, want an error", key)
		}
	}
}

func TestCheckValue(t *testing.T) {
	if err := secret.CheckValue("k", make([]byte, secret.MaxValue)); err != nil {
		t.Errorf("CheckValue(MaxValue) = %v, want nil", err)
	}
	if err := secret.CheckValue("k", make([]byte, secret.MaxValue+1)); err == nil {
		t.Error("CheckValue(MaxValue+1) = nil, want an error")
	}
}

func TestRefuse(t *testing.T) {
	var s secret.Refuse
	ctx := t.Context()
	_, get := s.Get(ctx, "k")
	_, list := s.List(ctx, "")
	calls := map[string]error{
		"get": get, "list": list, "put": s.Put(ctx, "k", nil), "create": s.Create(ctx, "k", nil),
		"swap": s.CompareAndSwap(ctx, "k", nil, nil), "delete": s.Delete(ctx, "k"),
	}
	for name, err := range calls {
		if !errors.Is(err, secret.ErrRefused) {
			t.Errorf("%s = %v, want ErrRefused", name, err)
		}
		if errors.Is(err, secret.ErrNotFound) {
			t.Errorf("%s of a refusing store reads as absent", name)
		}
	}
}
