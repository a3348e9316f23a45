package script_test

import (
	"strings"
	"testing"

	"github.com/cotal-go/cotal/internal/script"
	"github.com/cotal-go/cotal/wire"
)

func fenced(lines string) string { return "You follow.\n\n```script\n" + lines + "\n```\n" }

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		fenced("say general"):               `line 4: say is not complete: want say <channel> <text>`,
		fenced("say gen*ral hi"):            `line 4: `,
		fenced("\n# note\nshout general"):   `line 6: no statement "shout"`,
		fenced("reply hi"):                  `line 4: reply answers a message`,
		fenced("on dm"):                     `line 4: a statement is missing`,
		fenced("on email reply hi"):         `line 4: on "email": want on dm, on mention`,
		fenced("on channel reply"):          `line 4: a statement is missing`,
		fenced("on dm on dm reply hi"):      `line 4: no statement "on"`,
		fenced("status asleep"):             `line 4: status "asleep": want idle, working or waiting`,
		fenced("wait long"):                 `line 4: wait "long"`,
		fenced("wait -1s"):                  `line 4: wait "-1s"`,
		fenced("exit 126"):                  `line 4: exit "126": want a code from 0 to 125`,
		fenced("spawn"):                     `line 4: spawn is not complete`,
		"```script\nprint x":                `line 2: the script has no end`,
		fenced("print x") + fenced("print"): `a second script`,
	} {
		_, err := script.Parse(text)
		if wire.CodeOf(err) != wire.CodeBadRequest || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, want bad-request with %q", text, err, want)
		}
	}
}

func TestParseAccepts(t *testing.T) {
	for _, text := range []string{
		"", "no script here\n```go\nx\n```\n", fenced(""),
		fenced("say #general hello {name}\nstatus working on it\nstatus idle\nwait 2s\nprint x\nspawn scribe\non dm reply {text}\non channel team.a say general {from}\non role exit 3\nexit 0"),
	} {
		if _, err := script.Parse(text); err != nil {
			t.Errorf("Parse(%q): %v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(fenced("say general hi\non dm reply {text}"))
	f.Add("```script\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := script.Parse(text)
		if (p == nil) == (err == nil) || err != nil && wire.CodeOf(err) != wire.CodeBadRequest {
			t.Errorf("Parse(%q) = %v, %v", text, p, err)
		}
	})
}
