package auth_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/auth"
)

// TestAnAgentsSecretIsNotPrinted: who decides about agents is handed their secrets, and may log what it is handed.
func TestAnAgentsSecretIsNotPrinted(t *testing.T) {
	t.Parallel()
	const token = "tops3cret"
	req := auth.AgentRequest{Owner: adasOwner, Actor: "helper", Token: []byte(token), Scope: []string{}}
	type exported struct{ Req auth.AgentRequest }
	for _, v := range []any{req, &req, exported{req}, &exported{req}, []auth.AgentRequest{req}, map[string]any{"k": req}} {
		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(h).Info("value", "v", v, slog.Group("g", "v", v))
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(text)
		for _, form := range []string{token, fmt.Sprintf("%x", token), fmt.Sprint([]byte(token)), "dG9wczNjcmV0"} {
			if strings.Contains(out.String(), form) {
				t.Errorf("a %T shows the secret as %s", v, form)
			}
		}
		if !strings.Contains(out.String(), "helper") {
			t.Errorf("a %T does not say whom it is for: %s", v, out.String())
		}
	}
}
