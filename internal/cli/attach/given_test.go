package attach

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/cotal-go/cotal/internal/cli/command"
)

// TestWhatIsGivenToAView: a note is due for a pipe and for a file with something in it, and for no other standard input.
func TestWhatIsGivenToAView(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	inputs := map[string]io.Reader{"none": nil, "pipe": r}
	for name, data := range map[string]string{"empty": "", "file": "x"} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		inputs[name] = f
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	inputs["null"] = null
	for name, in := range inputs {
		if got, want := given(&command.Env{Stdin: in}), name == "pipe" || name == "file"; got != want {
			t.Errorf("%s: given = %v, want %v", name, got, want)
		}
	}
}
