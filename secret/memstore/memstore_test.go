package memstore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/secret/secrettest"
)

func TestStore(t *testing.T) {
	secrettest.Run(t, func(testing.TB) secret.Store { return memstore.New() })
}

func TestStoreNeverPrintsValues(t *testing.T) {
	s := memstore.New()
	if err := s.Put(t.Context(), "k", []byte("hush-hush")); err != nil {
		t.Fatal(err)
	}
	type holder struct{ store *memstore.Store }
	for _, v := range []any{s, holder{s}, &holder{s}, []any{s}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
			if got := fmt.Sprintf(verb, v); strings.Contains(got, "hush") || strings.Contains(got, fmt.Sprintf("%x", "hush")) {
				t.Errorf("Sprintf(%q) shows the value: %s", verb, got)
			}
		}
	}
}
