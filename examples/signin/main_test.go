package main

import (
	"strings"
	"testing"
)

func TestSignin(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatalf("signin: %v\n%s", err, out.String())
	}
	for _, want := range []string{"ada posted, signed in by the shop", "a guessed session is refused", "ada is out: grant-revoked"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
	}
}
