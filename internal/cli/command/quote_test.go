package command_test

import (
	"testing"

	"github.com/cotal-go/cotal/internal/cli/command"
)

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"general": "general", "team.backend": "team.backend", "nats://127.0.0.1:4222": "nats://127.0.0.1:4222", "--all": "--all",
		"team.>": "'team.>'", "*": "'*'", "a b": "'a b'", "it's": `'it'\''s'`, "": "''",
	} {
		if got := command.Quote(in); got != want {
			t.Errorf("Quote(%q) = %s, want %s", in, got, want)
		}
	}
}
