package login_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth/login"
)

// childEnv names the folder in which the re-run test binary asks for an id token.
const childEnv = "LOGIN_CHILD_DIR"

const children = 16

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		os.Exit(askInChild(dir))
	}
	os.Exit(m.Run())
}

// askInChild says that it is ready, waits for the start, asks for an id token and prints it.
func askInChild(dir string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s, err := login.Open(context.Background(), &login.StoreOptions{Dir: dir, Prefer: login.KindFile})
	if err != nil {
		return fail(err)
	}
	src := login.NewSource(s, demo, dir, nil)
	fmt.Println("ready")
	if _, err := io.ReadAll(os.Stdin); err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // from when all have started
	defer cancel()
	token, _, err := src.IDToken(ctx)
	if err != nil {
		return fail(err)
	}
	fmt.Println(token)
	return 0
}

// TestManyProcessesRefreshOnce: 16 processes find the same id token too old at the same moment; the provider, which ends the session when
// a refresh token is used twice, is asked once, and all get the same new token.
func TestManyProcessesRefreshOnce(t *testing.T) {
	t.Parallel()
	p := newIDP()
	srv := httptest.NewServer(p)
	defer srv.Close()
	p.issuer = srv.URL
	dir := t.TempDir()
	src := login.NewSource(files(t, dir), demo, dir, nil)
	if err := src.SignIn(t.Context(), signedIn(t, p, p.provider(), time.Second)); err != nil {
		t.Fatal(err)
	}
	type child struct {
		cmd   *exec.Cmd
		start io.Closer
		lines *bufio.Scanner
	}
	all := make([]child, children)
	for i := range all {
		c := exec.CommandContext(t.Context(), os.Args[0])
		c.Env, c.Stderr = append(os.Environ(), childEnv+"="+dir), os.Stderr
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		all[i] = child{c, in, bufio.NewScanner(out)}
		all[i].lines.Buffer(nil, 64<<10)
	}
	for _, c := range all {
		if !c.lines.Scan() || c.lines.Text() != "ready" {
			t.Fatalf("child said %q", c.lines.Text())
		}
	}
	for _, c := range all {
		_ = c.start.Close()
	}
	tokens := map[string]int{}
	for _, c := range all {
		if c.lines.Scan() {
			tokens[c.lines.Text()]++
		}
		if err := c.cmd.Wait(); err != nil {
			t.Errorf("child: %v", err)
		}
	}
	if len(tokens) != 1 || p.refreshes != 1 || p.ended {
		t.Errorf("%d tokens, %d refreshes, session over %t, want one, one, false", len(tokens), p.refreshes, p.ended)
	}
}
