package main

import (
	"strings"
	"testing"
)

func TestHost(t *testing.T) {
	var out strings.Builder
	if err := host(t.Context(), &out); err != nil {
		t.Fatalf("host: %v\n%s", err, out.String())
	}
	for _, want := range []string{
		"initech heard local.ada: message 1 of initech",
		"a credential of acme is not heard in globex",
		"globex removed; a credential for it is refused",
		"acme heard local.ada: message 3 of acme",
		"spaces now: [acme initech]",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
	}
}
