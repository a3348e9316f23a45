package config_test

import (
	"strings"
	"testing"

	"github.com/cotal-go/cotal/internal/config"
)

func TestSanitise(t *testing.T) {
	for in, want := range map[string]string{
		"ada": "ada", `CORP\Ada.Lovelace`: "Ada_Lovelace", "josé": "jos_", "a-b": "a_b", "": "", "...": "",
		strings.Repeat("x", 80): strings.Repeat("x", 64),
	} {
		if got := config.Sanitise(in); got != want {
			t.Errorf("Sanitise(%q) = %q, want %q", in, got, want)
		}
	}
}
