package cli_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/internal/idptest"
)

type (
	idpsKey   struct{}
	scriptKey struct{}
)

// scriptTB lets what a test needs live as long as one script.
type scriptTB struct {
	testing.TB
	ts *testscript.TestScript
}

func (s scriptTB) Cleanup(fn func())                 { s.ts.Defer(fn) }
func (s scriptTB) Fatal(args ...any)                 { s.ts.Fatalf("%v", args) }
func (s scriptTB) Fatalf(format string, args ...any) { s.ts.Fatalf(format, args...) }
func (s scriptTB) Skip(args ...any)                  { s.ts.Value(scriptKey{}).(testscript.T).Skip(args...) }

// idp <variable>[=<kind>] [client [audience [life]]]: starts an identity provider, whose issuer is put into a variable, and its base
// address into another ending in _BASE, with one public client; its tokens live as long as told.
// `idp <variable> down` and `up` begin and end an outage.
func cmdIDP(t testing.TB) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) == 0 {
			ts.Fatalf("usage: idp <variable> [client [audience [life]]|down|up]")
		}
		name, kind, named := strings.Cut(args[0], "=")
		if !named {
			kind = string(idptest.Zitadel)
		}
		all := ts.Value(idpsKey{}).(map[string]*idptest.IdP)
		if idp := all[name]; idp != nil {
			switch strings.Join(args[1:], " ") {
			case "down":
				idp.Cut()
			case "up":
				idp.Up()
			default:
				ts.Fatalf("idp %s runs already", name)
			}
			return
		}
		o := &idptest.Options{}
		if len(args) > 1 {
			o.ClientID = args[1]
		}
		if len(args) > 2 {
			o.Audience = args[2]
		}
		if len(args) > 3 {
			life, err := time.ParseDuration(args[3])
			ts.Check(err)
			o.TokenLife = life
		}
		idp := idptest.Start(scriptTB{t, ts}, idptest.Kind(kind), o)
		all[name] = idp
		ts.Setenv(name, idp.Issuer)
		ts.Setenv(name+"_BASE", idp.BaseURL)
	}
}

// shownCode is the code that `cotal login` shows.
var shownCode = regexp.MustCompile(`(?:code: |"userCode":")([A-Z0-9-]+)`)

// approve <idp variable> <process> <user> [deny]: waits until the process shows a code, and lets the user approve it.
func cmdApprove(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: approve <idp> <process> <user> [deny]")
	}
	idp := ts.Value(idpsKey{}).(map[string]*idptest.IdP)[args[0]]
	if idp == nil {
		ts.Fatalf("no idp %q", args[0])
	}
	j := jobOf(ts, args[1])
	cmdExpect(ts, false, []string{args[1], shownCode.String()})
	lines := strings.Split(strings.TrimSpace(j.seen.String()), "\n")
	code := shownCode.FindStringSubmatch(lines[len(lines)-1])[1]
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if len(args) > 3 {
		ts.Check(idp.Deny(ctx, code, args[2]))
		return
	}
	ts.Check(idp.Approve(ctx, code, args[2]))
}

// ownerof <variable> <file>: puts the owner that a result of `cotal … --json` or a sentence names into a variable.
func cmdOwnerOf(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: ownerof <variable> <file>")
	}
	owner := regexp.MustCompile(`u_[a-z2-7]{26}`).FindString(ts.ReadFile(args[1]))
	if owner == "" {
		ts.Fatalf("no owner in:\n%s", ts.ReadFile(args[1]))
	}
	ts.Setenv(args[0], owner)
}

// freeport <variable>: puts the number of a port that is free now into a variable.
func cmdFreePort(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: freeport <variable>")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	ts.Check(err)
	ts.Check(l.Close())
	ts.Setenv(args[0], port)
}

// secretless <folder>...: checks that no file below holds a token or a seed in the clear.
func cmdSecretless(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: secretless <folder>...")
	}
	secret := regexp.MustCompile(`eyJ[A-Za-z0-9_-]{20,}|S[UAO][A-Z2-7]{50,}`)
	for _, dir := range args {
		ts.Check(filepath.WalkDir(ts.MkAbs(dir), func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			if err == nil && secret.Match(data) {
				ts.Fatalf("%s holds a secret in the clear", path)
			}
			return err
		}))
	}
}

// signIn runs `cotal login --json` of a user who approves at once, and returns its lines.
func (w *world) signIn(idp *idptest.IdP, user string, args ...string) (code int, stdout, stderr string) {
	w.t.Helper()
	pr, pw := io.Pipe()
	var errs strings.Builder
	done := make(chan int, 1)
	go func() {
		c := mainOf(w, pw, &errs, append([]string{"login", "--json"}, args...)...)
		_ = pw.Close()
		done <- c
	}()
	var out strings.Builder
	buf := make([]byte, 4096)
	approved := false
	for {
		n, err := pr.Read(buf)
		out.Write(buf[:n])
		if m := shownCode.FindStringSubmatch(out.String()); m != nil && !approved {
			approved = true
			if err := idp.Approve(w.t.Context(), m[1], user); err != nil {
				w.t.Error(err)
			}
		}
		if err != nil {
			return <-done, out.String(), errs.String()
		}
	}
}

// ownerIn is the owner that a result names.
func ownerIn(t *testing.T, result string) string {
	t.Helper()
	owner := regexp.MustCompile(`u_[a-z2-7]{26}`).FindString(result)
	if owner == "" {
		t.Fatalf("no owner in %q", result)
	}
	return owner
}

// TestShapesOfPeople pins what commands print with --json in a space where people sign in.
func TestShapesOfPeople(t *testing.T) {
	w := newWorld(t)
	w.env["COTAL_SESSIONS"] = "file"
	idp := idptest.Start(t, idptest.Zitadel, nil)
	got := map[string]string{"up_people": w.up("--idp", idp.Issuer, "--idp-client", idp.ClientID)}
	_, got["login_denied"], _ = w.signIn(idp, "ada")
	w.must("actor", "grant", "ada", "--owner", ownerIn(t, got["login_denied"]), "--role", "reviewer", "--scope", "spawn,role:reviewer", "--allow-subscribe", "general", "--allow-publish", "general")
	_, got["login"], _ = w.signIn(idp, "ada")
	got["whoami"] = w.must("whoami", "--json")
	got["status_people"] = w.must("status", "--json")
	_, _, got["failure_denied"] = w.run("", "channels", "set", "general", "--description", "d", "--json")
	got["logout"] = w.must("logout", "--json")
	got["space_add_people"] = w.must("space", "add", "lab", "--idp", idp.Issuer, "--idp-client", "lab", "--json")
	for name, out := range got {
		t.Run(name, func(t *testing.T) { golden(t, filepath.Join("testdata", "json", name+".golden"), shapes(t, out)) })
	}
	var failure struct {
		Error struct {
			Details struct{ Reason string }
		}
	}
	if err := json.Unmarshal([]byte(got["failure_denied"]), &failure); err != nil || failure.Error.Details.Reason != "scope-missing" {
		t.Errorf("failure %s: reason %q, error %v; want scope-missing", got["failure_denied"], failure.Error.Details.Reason, err)
	}
	signIns, err := config.Machine{Dir: w.env["COTAL_HOME"]}.SignIns()
	if err != nil || len(signIns) != 1 {
		t.Errorf("sign-ins: %v, %v; want one", signIns, err)
	}
}

// front <variable> <cert> <port>: starts a proxy that speaks TLS in front of a port of this machine, puts its address into a
// variable and its certificate, which no system knows, into a file.
func cmdFront(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: front <variable> <cert> <port>")
	}
	srv := httptest.NewUnstartedServer(httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "127.0.0.1:" + args[2]}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	ts.Defer(srv.Close)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), cert, 0o644))
	ts.Setenv(args[0], srv.URL)
}
