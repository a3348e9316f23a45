package supervisor_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/supervisor/seat"
)

// TestTheEnvironmentOfASeatIsNotPrinted: it has the keys of model providers that an agent's host is passed.
func TestTheEnvironmentOfASeatIsNotPrinted(t *testing.T) {
	t.Parallel()
	const key = "k3y-of-a-provider"
	env := []string{"PATH=/bin", "ANTHROPIC_API_KEY=" + key}
	real := seat.StartOptions{Spec: seat.Spec{Principal: "local.scribe", Env: env}}
	for _, v := range []any{supervisor.SeatSpec{Principal: "local.scribe", Env: env}, &supervisor.SeatSpec{Principal: "local.scribe", Env: env}, real, &real} {
		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("value", "v", v)
		if strings.Contains(out.String(), key) || strings.Contains(out.String(), fmt.Sprintf("%x", key)) {
			t.Errorf("a %T shows the key", v)
		}
		if !strings.Contains(out.String(), "local.scribe") {
			t.Errorf("a %T does not say whose it is: %s", v, out.String())
		}
	}
}
