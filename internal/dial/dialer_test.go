package dial

import (
	"testing"

	"github.com/cotal-go/cotal/wire"
)

// TestPlaintextStaysOnThisMachine: what a broker of this machine names elsewhere is not dialled; where the caller itself named another
// machine, it is.
func TestPlaintextStaysOnThisMachine(t *testing.T) {
	for urls, want := range map[string]bool{
		"nats://127.0.0.1:4222":                       true,
		"nats://localhost:4222, nats://[::1]:4223":    true,
		"nats://127.0.0.1:4222,nats://192.0.2.1:4222": false,
		"nats://mesh.example:4222":                    false,
		"tls://127.0.0.1:4222":                        false,
	} {
		if got := confined(urls); got != want {
			t.Errorf("confined(%q) = %t, want %t", urls, got, want)
		}
	}
	d := &dialer{inside: true}
	for _, far := range []string{"192.0.2.1:4222", "mesh.example:4222", "nowhere"} {
		if _, err := d.Dial("tcp", far); wire.CodeOf(err) != wire.CodeFailedPrecondition {
			t.Errorf("dial %q: %v, want failed-precondition", far, err)
		}
	}
}
