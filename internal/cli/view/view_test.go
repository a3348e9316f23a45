package view_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/wire"
)

func TestMentions(t *testing.T) {
	many := strings.Repeat("@x1 ", 3)
	for in, want := range map[string][]string{
		"":                                   nil,
		"hello @Nova, and @bob-2.":           {"nova", "bob-2"},
		"mail a@b.org or x.@y":               nil,
		"(@ada) @ada @ADA":                   {"ada"},
		many:                                 {"x1"},
		"@":                                  nil,
		"@été @_x":                           {"été", "_x"},
		"@nova's and @team.backend/@ops-...": {"nova", "team.backend", "ops"},
	} {
		if diff := cmp.Diff(want, view.Mentions(in, nil)); diff != "" {
			t.Errorf("Mentions(%q) (-want +got):\n%s", in, diff)
		}
	}
	if diff := cmp.Diff([]string{"carl", "ada"}, view.Mentions("@ada", []string{"@Carl", "ADA"})); diff != "" {
		t.Errorf("with extra names (-want +got):\n%s", diff)
	}
}

// The name on the card is a claim: it is shown beside the principal, never in its place.
func TestSpeaker(t *testing.T) {
	for name, want := range map[string]string{"nova": "local.nova", "": "local.nova", "boss": "local.nova (boss)"} {
		if got := view.Speaker("local.nova", &view.Claim{From: wire.EndpointRef{Name: name}}); got != want {
			t.Errorf("Speaker with name %q = %q, want %q", name, got, want)
		}
	}
}

func TestContent(t *testing.T) {
	m := &view.Claim{Parts: []wire.Part{
		wire.Text("a"), {Kind: wire.PartData, Data: json.RawMessage(`{"n":1}`)},
		{Kind: wire.PartArtifact, Artifact: &wire.Artifact{Name: "x.txt", MediaType: "text/plain", Digest: "sha256:0"}},
		{Kind: "com.acme.thing", Raw: json.RawMessage(`{"kind":"com.acme.thing"}`)},
	}}
	want := "a\n[data] {\"n\":1}\n[artifact] x.txt text/plain sha256:0\n[com.acme.thing]"
	if got := view.Content(m); got != want {
		t.Errorf("Content = %q, want %q", got, want)
	}
}

// A received message may lack an id, which a message that is to be sent may not.
func TestClaimWithoutIDIsPrinted(t *testing.T) {
	data, err := json.Marshal(view.Entry{Message: &view.Claim{Parts: []wire.Part{wire.Text("x")}, Channel: "c"}})
	if err != nil || !strings.Contains(string(data), `"id":""`) {
		t.Errorf("entry = %s, %v; want an empty id", data, err)
	}
}

// A message that is not from today is shown with its date.
func TestStamp(t *testing.T) {
	now := time.Date(2026, 3, 2, 0, 30, 0, 0, time.Local)
	if got, want := view.Stamp(now.Add(-time.Minute), now), "00:29:00"; got != want {
		t.Errorf("stamp of today = %q, want %q", got, want)
	}
	if got, want := view.Stamp(now.Add(-time.Hour), now), "2026-03-01 23:30:00"; got != want {
		t.Errorf("stamp of yesterday = %q, want %q", got, want)
	}
}
