package fault_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/secret/filestore"
)

const (
	spaceName = "crash"
	childDir  = "COTAL_FAULT_DIR"    // set: this process is the node, over this folder
	childSync = "COTAL_FAULT_STRICT" // "1": sync before every acknowledgement
	childPort = "COTAL_FAULT_PORT"   // of the broker; empty lets the system choose
	childRole = "COTAL_FAULT_ROLE"   // what the process is: a node, or a role of crashChild
)

// TestMain turns the test binary into the node that is to be killed when the parent asks for it.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		role, run := os.Getenv(childRole), serve
		if role != "" && role != roleNode {
			run = crashChild
		}
		switch role {
		case roleAgent:
			run = agent
		case roleMortal:
			run = mortalChild
		case roleAuthority:
			run = authorityChild
		case roleBroker:
			run = brokerChild
		}
		if err := run(dir, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, role+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func serve(dir string, out io.Writer) error {
	store, err := records(dir)
	if err != nil {
		return err
	}
	port := -1
	if p := os.Getenv(childPort); p != "" {
		if port, err = strconv.Atoi(p); err != nil {
			return err
		}
	}
	n := cotal.New(store, &cotal.Options{
		StateDir: filepath.Join(dir, "broker"), Port: port, Transport: broker.Plaintext(), Spaces: []string{spaceName},
		Strict: os.Getenv(childSync) == "1", DeliveryElsewhere: os.Getenv(childRole) == roleNode,
	})
	ctx, cancel := untilParentEnds()
	defer cancel()
	go func() {
		<-n.Ready()
		fmt.Fprintln(out, n.URL())
	}()
	return n.Run(ctx)
}

// untilParentEnds ends when the input of this process does: it never outlives its parent.
func untilParentEnds() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx, cancel
}

func records(dir string) (secret.Store, error) { return filestore.New(filepath.Join(dir, "auth")) }

// child is a running node process.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	url string // what it said when it was ready: of a node its address
}

// start runs a node over dir and waits until it is ready.
func start(t testing.TB, dir string, strict bool) *child {
	t.Helper()
	env := []string{childDir + "=" + dir}
	if strict {
		env = append(env, childSync+"=1")
	}
	return spawn(t, env...)
}

// spawn runs this test binary with more environment and waits for the line that says that it is ready.
func spawn(t testing.TB, env ...string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.Command(exe)}
	c.cmd.Env = append(os.Environ(), env...)
	var stderr strings.Builder
	c.cmd.Stderr = &stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	line := make(chan string, 1)
	go func() {
		s, _ := bufio.NewReader(out).ReadString('\n')
		line <- strings.TrimSpace(s)
	}()
	select {
	case c.url = <-line:
	case <-time.After(30 * time.Second):
	}
	if c.url == "" {
		c.kill()
		t.Fatalf("process did not start: %s", stderr.String())
	}
	return c
}

// kill is kill -9, and waits until the process is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// pause lets real time pass: a process that is to be killed and a disk whose power is to be cut follow no fake clock.
func pause(d time.Duration) { <-time.After(d) }
