package launch_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/internal/archtest"
	"github.com/cotal-go/cotal/internal/launch"
	"github.com/cotal-go/cotal/wire"
)

const token = "hush-hush-token"

func uid(t testing.TB) wire.UID {
	t.Helper()
	return wire.NewUID()
}

func sample(t testing.TB) launch.File {
	dir := t.TempDir()
	return launch.File{
		V: launch.Version, Space: "main", Server: "nats://127.0.0.1:4222", Principal: "local.nova", UID: uid(t), Name: "nova",
		Role: "reviewer", Connector: "script", Persona: "reviewer", PersonaText: "Be kind.\n", Manager: "m1", Dir: dir,
		Creds: filepath.Join(dir, "creds"), Subscribe: []string{"general"}, Capabilities: []string{"spawn"}, Wakes: true,
	}
}

func people(t testing.TB) launch.File {
	f := sample(t)
	f.Creds = ""
	f.Exchange = &launch.Exchange{CapabilityFile: filepath.Join(f.Dir, "cap.json"), Owner: "local", Actor: "nova", Secret: token}
	return f
}

func TestRoundTrip(t *testing.T) {
	for name, f := range map[string]launch.File{"files": sample(t), "people": people(t)} {
		path := filepath.Join(f.Dir, "launch.json")
		for range 2 { // the second replaces the first
			if err := launch.Write(path, f); err != nil {
				t.Fatal(err)
			}
		}
		got, err := launch.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(f, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if all, err := os.ReadDir(f.Dir); err != nil || len(all) != 1 {
			t.Errorf("%s: the folder holds %v, %v; want the file alone", name, all, err)
		}
	}
}

func TestSecretIsNotPrinted(t *testing.T) {
	f := people(t)
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "f", f, "p", &f, "x", *f.Exchange, "s", f.Exchange.Secret)
	said := log.String()
	for _, v := range []any{f, &f, *f.Exchange, f.Exchange, f.Exchange.Secret, []launch.File{f}, struct{ F launch.File }{f}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			said += fmt.Sprintf(verb, v)
		}
	}
	if strings.Contains(said, token) || strings.Contains(said, fmt.Sprintf("%x", token)) {
		t.Errorf("the secret is printed: %s", said)
	}
}

func TestReadRefuses(t *testing.T) {
	good := sample(t)
	raw, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	swap := func(old, want string) string { return strings.Replace(string(raw), old, want, 1) }
	for name, c := range map[string]struct {
		text string
		code wire.Code
	}{
		"unknown field":     {swap(`{"v":1`, `{"v":1,"colour":"red"`), wire.CodeBadRequest},
		"twice":             {swap(`{"v":1`, `{"v":1,"v":1`), wire.CodeBadRequest},
		"another case":      {swap(`"space"`, `"Space"`), wire.CodeBadRequest},
		"later edition":     {swap(`{"v":1`, `{"v":2,"colour":"red"`), wire.CodeUnsupportedVersion},
		"no edition":        {swap(`"v":1,`, ``), wire.CodeUnsupportedVersion},
		"no principal":      {swap(`local.nova`, `nova`), wire.CodeBadRequest},
		"no credential":     {swap(`"creds"`, `"caFile"`), wire.CodeBadRequest},
		"relative path":     {swap(`"dir":"/`, `"dir":"`), wire.CodeBadRequest},
		"trailing text":     {string(raw) + "x", wire.CodeBadRequest},
		"empty":             {"", wire.CodeBadRequest},
		"too long":          {swap(`Be kind.`, strings.Repeat("x", 1<<20)), wire.CodeBadRequest},
		"exchange of other": {swap(`"creds":"`+good.Creds+`"`, `"exchange":{"capabilityFile":"/c","owner":"local","actor":"ada","secret":"`+token+`"}`), wire.CodeBadRequest},
	} {
		path := filepath.Join(t.TempDir(), "launch.json")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := launch.Read(path)
		if wire.CodeOf(err) != c.code || err == nil || strings.Contains(err.Error(), token) {
			t.Errorf("%s: %v, want code %q", name, err, c.code)
		}
	}
	if _, err := launch.Read(filepath.Join(t.TempDir(), "none")); wire.CodeOf(err) != wire.CodeNotFound {
		t.Errorf("no file: %v, want not-found", err)
	}
}

// TestReadRefusesWhatOthersReach is about files that somebody else could have read or put there.
func TestReadRefusesWhatOthersReach(t *testing.T) {
	if runtime.GOOS == "windows" {
		archtest.NotHere(t, "files have no mode bits on this system")
	}
	f := sample(t)
	path := filepath.Join(f.Dir, "launch.json")
	if err := launch.Write(path, f); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o644, 0o640, 0o602, 0o700, 0o400} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := launch.Read(path); wire.CodeOf(err) != wire.CodeFailedPrecondition {
			t.Errorf("mode %#o: %v, want failed-precondition", mode, err)
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(f.Dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{link, f.Dir} {
		if _, err := launch.Read(p); wire.CodeOf(err) != wire.CodeFailedPrecondition {
			t.Errorf("%s: %v, want failed-precondition", p, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []launch.File{sample(f), people(f)} {
		data, err := json.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	path := filepath.Join(f.TempDir(), "launch.json")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := launch.Read(path)
		if err != nil {
			return
		}
		if err := launch.Write(path, got); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := launch.Read(path)
		if diff := cmp.Diff(got, again); err != nil || diff != "" {
			t.Errorf("changed on a round trip (%v):\n%s", err, diff)
		}
	})
}
