package person_test

import (
	"testing"

	"github.com/cotal-go/cotal/internal/cli/person"
	"github.com/cotal-go/cotal/wire"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		line     string
		verb     int
		to, text string
	}{
		{"", person.VerbNone, "", ""},
		{"   ", person.VerbNone, "", ""},
		{"hello there", person.VerbSay, "", "hello there"},
		{"//quit is a command", person.VerbSay, "", "/quit is a command"},
		{"/who", person.VerbWho, "", ""},
		{"/dm nova  two  words", person.VerbDirect, "nova", "two  words"},
		{"/dm @nova hi", person.VerbDirect, "nova", "hi"},
		{"/dm\tlocal.nova hi", person.VerbDirect, "local.nova", "hi"},
		{"/ask reviewer look", person.VerbAsk, "reviewer", "look"},
		{"/status waiting", person.VerbStatus, "waiting", ""},
		{"/status working on it", person.VerbStatus, "working", "on it"},
		{"/channel #team.x", person.VerbChannel, "team.x", ""},
		{"/leave #team.>", person.VerbLeave, "team.>", ""},
		{"/help", person.VerbHelp, "", ""},
		{"/quit", person.VerbQuit, "", ""},
	} {
		v, to, text, err := person.Parse(tt.line)
		if err != nil || v != tt.verb || to != tt.to || text != tt.text {
			t.Errorf("parse %q = %d %q %q, %v; want %d %q %q", tt.line, v, to, text, err, tt.verb, tt.to, tt.text)
		}
	}
	for _, line := range []string{"/", "/dm", "/dm nova", "/ask", "/status", "/status offline", "/channel", "/channel a..b", "/channel team.>", "/leave", "/leave a..b", "/nope"} {
		if _, _, _, err := person.Parse(line); wire.CodeOf(err) != wire.CodeBadRequest {
			t.Errorf("parse %q = %v, want bad-request", line, err)
		}
	}
}
