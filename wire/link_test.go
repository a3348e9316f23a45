package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/wire"
)

func TestLinkFields(t *testing.T) {
	l, err := wire.ParseLink("cotals://a%3Ab%40c%2Fd@mesh.example.com:7000/main?channel=general,team.>")
	if err != nil {
		t.Fatal(err)
	}
	if !l.TLS || l.Token() != "a:b@c/d" || l.User != "" || l.Password() != "" || l.Host != "mesh.example.com" || l.Port != 7000 || l.Space != "main" ||
		strings.Join(l.Channels, " ") != "general team.>" {
		t.Errorf("parsed %+v, token %q", l, l.Token())
	}
	if got, want := l.URL(), "tls://mesh.example.com:7000"; got != want {
		t.Errorf("URL = %q, want %q", got, want)
	}
	again, err := wire.ParseLink(l.Reveal())
	if err != nil || !again.Equal(l) {
		t.Errorf("ParseLink(%q) = %+v, %v", l.Reveal(), again, err)
	}
	l, err = wire.ParseLink("cotal://ada:pw@[::1]/main")
	if err != nil || l.User != "ada" || l.Password() != "pw" || l.Token() != "" || l.URL() != "nats://[::1]:4222" {
		t.Errorf("parsed %+v, password %q, url %q, %v", l, l.Password(), l.URL(), err)
	}
}

// A link inside any value, printed by any verb, encoded or logged, shows no secret.
func TestLinkKeepsItsSecret(t *testing.T) {
	const secret = "hunter2-s3cret"
	token, err := wire.ParseLink("cotal://" + secret + "@host/main")
	if err != nil {
		t.Fatal(err)
	}
	password, err := wire.ParseLink("cotal://ada:" + secret + "@host/main")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []wire.Link{token, password} {
		hidden := struct {
			link wire.Link
			ptr  *wire.Link
		}{l, &l}
		var texts []string
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			texts = append(texts, fmt.Sprintf(verb, l), fmt.Sprintf(verb, &l), fmt.Sprintf(verb, hidden), fmt.Sprintf(verb, []wire.Link{l}))
		}
		encoded, err := json.Marshal(map[string]any{"link": l})
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		slog.New(slog.NewJSONHandler(&log, nil)).Info("dial", "link", l)
		texts = append(texts, l.String(), string(encoded), log.String())
		for _, text := range texts {
			if strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret)) {
				t.Errorf("secret shown: %s", text)
			}
		}
		if !strings.Contains(l.Reveal(), secret) {
			t.Errorf("Reveal = %q, want the secret", l.Reveal())
		}
	}
}

func TestLinkErrorsShowNothing(t *testing.T) {
	const secret = "hunter2"
	for _, s := range []string{"http://" + secret + "@host/x", "cotal://" + secret + "%zz@host/main", "cotal://" + secret + "@ho st/main", "cotal://" + secret} {
		if _, err := wire.ParseLink(s); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("ParseLink(%q) error = %v", s, err)
		}
	}
}

func TestLinkEqual(t *testing.T) {
	base := wire.Link{Host: "h", Port: 1, Space: "s"}
	if !base.WithToken("a").Equal(base.WithToken("a")) || base.WithToken("a").Equal(base.WithToken("b")) || base.WithToken("a").Equal(base) ||
		base.WithPassword("u", "p").Equal(base.WithPassword("u", "q")) || !base.WithToken("a").WithToken("").Equal(base) {
		t.Error("Equal does not compare secrets")
	}
}
