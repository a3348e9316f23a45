package idptest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/archtest"
)

// How long a child may take to answer at first (the machine may be busy), and to end once it is told to.
const (
	startPatience = time.Minute
	endPatience   = 5 * time.Second
)

// A child is a script of conformance/idp; child.mjs says how they talk.
type child struct {
	lines chan string // what it said; closed when its output ends

	mu   sync.Mutex // held for one command and its answer; guards what follows
	in   io.Writer
	last int // the number of the last command
}

// startNode starts a script, the name of its package, and returns it with the way to its address.
func startNode(t testing.TB, name, issuer string, o Options) (*child, http.Handler) {
	t.Helper()
	bin, err := exec.LookPath("node")
	if err != nil {
		archtest.Skip(t, "node is not installed")
	}
	dir := scripts(t)
	if _, err := os.Stat(filepath.Join(dir, "node_modules", name)); err != nil {
		archtest.Skip(t, "the identity providers in JavaScript are not installed: run conformance/idp/setup")
	}
	settings, err := json.Marshal(map[string]any{
		"issuer": issuer, "clientId": o.ClientID, "audience": o.Audience, "tokenLife": int(o.TokenLife / time.Second),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, kill := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, bin, name+".mjs", string(settings))
	cmd.Dir = dir
	cmd.Env = []string{} // nothing here is for a child that listens
	cmd.WaitDelay = endPatience
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		kill()
		t.Fatalf("idptest: start %s: %v", name, err)
	}
	c := &child{lines: make(chan string, 1), in: in}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	})
	t.Cleanup(func() {
		defer kill()
		_ = in.Close() // which ends it
		defer time.AfterFunc(endPatience, kill).Stop()
		for range c.lines { // a late answer
		}
		reading.Wait()
		if err := cmd.Wait(); err != nil {
			t.Errorf("idptest: %s ended: %v", name, err)
		}
	})
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return c, proxyTo(c.address(t, name), transport, t.Output())
}

// scripts finds conformance/idp above the folder in which go test runs the tests of a package.
func scripts(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for {
		found := filepath.Join(dir, "conformance", "idp")
		if _, err := os.Stat(filepath.Join(found, "package.json")); err == nil {
			return found
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("idptest: no conformance/idp above the test")
		}
		dir = up
	}
}

// address waits until the child answers.
func (c *child) address(t testing.TB, name string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startPatience)
	defer cancel()
	said, err := c.next(ctx)
	if err != nil || said.Address == "" {
		t.Fatalf("idptest: %s did not start: %v", name, err)
	}
	return said.Address
}

// A line is what a child says.
type line struct {
	Address, Error string
	ID             int // of the command answered
}

func (c *child) next(ctx context.Context) (line, error) {
	var l line
	select {
	case text, ok := <-c.lines:
		if !ok {
			return l, errors.New("the identity provider has ended")
		}
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			return l, fmt.Errorf("the identity provider said %q: %w", text, err)
		}
		return l, nil
	case <-ctx.Done():
		return l, ctx.Err()
	}
}

// do has the child do one of its commands.
func (c *child) do(ctx context.Context, command string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	if err := json.NewEncoder(c.in).Encode(map[string]any{"do": command, "id": c.last}); err != nil {
		return err
	}
	for {
		l, err := c.next(ctx)
		switch {
		case err != nil:
			return err
		case l.ID != c.last: // the answer to a command that was given up
		case l.Error != "":
			return errors.New(l.Error)
		default:
			return nil
		}
	}
}

func (c *child) rotate(ctx context.Context) error      { return c.do(ctx, "rotate") }
func (c *child) dropOldKeys(ctx context.Context) error { return c.do(ctx, "drop") }
