package fault_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	roleMortal = "mortal" // an authority that takes something away and may be killed at a step of it

	childDeed   = "COTAL_FAULT_DEED"
	childTarget = "COTAL_FAULT_TARGET" // whom it is done to
	childStep   = "COTAL_FAULT_STEP"   // before which change the process is killed
)

// deed is something that takes away.
type deed func(ctx context.Context, a *auth.Authority, s wire.Space, p wire.Principal) error

// deeds are what a process is killed at, by name.
func deeds() map[string]deed {
	return map[string]deed{
		"revoke": func(ctx context.Context, a *auth.Authority, s wire.Space, p wire.Principal) error {
			_, err := a.Revoke(ctx, s, p)
			return err
		},
		"narrow": func(ctx context.Context, a *auth.Authority, s wire.Space, p wire.Principal) error {
			_, err := a.Grant(ctx, auth.GrantRequest{Space: s, Owner: p.Owner, Actor: p.Actor, Subscribe: []string{"team.b"}})
			return err
		},
		"renew": func(ctx context.Context, a *auth.Authority, s wire.Space, p wire.Principal) error {
			_, _, err := a.Renew(ctx, auth.Request{Space: s, Actor: p.Actor, Subscribe: []string{"team.b"}})
			return err
		},
	}
}

// mortalChild does its deed, unless it is killed before, and says at which steps it could have been.
func mortalChild(dir string, out io.Writer) error {
	ctx, cancel := untilParentEnds()
	defer cancel()
	store, err := records(dir)
	if err != nil {
		return err
	}
	left, err := strconv.Atoi(os.Getenv(childStep))
	if err != nil {
		return err
	}
	at, err := url.Parse(os.Getenv(childURL))
	if err != nil {
		return err
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	st := &steps{left: left, die: func() {
		_ = self.Kill()
		select {} // until the signal has come
	}}
	p := &tapped{steps: st, open: func() (net.Conn, error) { return net.Dial("tcp", at.Host) }}
	m, err := newMortal(ctx, store, p)
	if err != nil {
		return err
	}
	target, err := wire.ParsePrincipal(os.Getenv(childTarget))
	if err != nil {
		return err
	}
	st.arm()
	if err := deeds()[os.Getenv(childDeed)](ctx, m.Authority, wire.Space(os.Getenv(childSpace)), target); err != nil {
		return err
	}
	for _, name := range st.seen() {
		fmt.Fprintln(out, name)
	}
	return nil
}

const childSpace = "COTAL_FAULT_SPACE"

// killAt runs a deed in a process of its own that is killed before its step-th change. When there are fewer, done is true and
// names says which.
func (st *stage) killAt(t *testing.T, dir, what string, p wire.Principal, step int) (names []string, done bool) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childDir+"="+dir, childRole+"="+roleMortal, childURL+"="+st.URL(), childSpace+"="+string(st.Space()),
		childDeed+"="+what, childTarget+"="+p.String(), childStep+"="+strconv.Itoa(step))
	in, err := cmd.StdinPipe() // it ends with this process
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return strings.Split(strings.TrimSpace(out.String()), "\n"), true
	case !errors.As(err, &exit) || said.Len() > 0: // it said what is wrong, so it was not killed
		t.Fatalf("%s of %s, to be killed before change %d: %v: %s", what, p, step, err, said.String())
	}
	return nil, false
}

// takings are the deeds, what must hold at once, and what in the end.
var takings = []struct {
	name   string
	people bool
	deed   string
	denied func(f *family, t *testing.T, what string)
	done   func(f *family, t *testing.T, what string)
}{
	{"people/revoke", true, "revoke", (*family).denied, (*family).gone},
	{"people/narrow", true, "narrow", (*family).denied, (*family).narrowed},
	{"credential_files/revoke", false, "revoke", (*family).denied, (*family).gone},
	{"credential_files/renew", false, "renew", (*family).marked, (*family).narrowed},
}

// TestTakingAwayIsKilledAtEachStep kills the process that revokes or narrows a principal before each change that it makes, one
// after the other. The principal has two levels below it, and everything that a life has. Whatever was done before, nobody is let
// in from the first change on, and whoever does the same again finishes the rest.
func TestTakingAwayIsKilledAtEachStep(t *testing.T) {
	for _, taking := range takings {
		t.Run(taking.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			store, err := records(dir)
			if err != nil {
				t.Fatal(err)
			}
			st := newStage(t, store, taking.people, true)
			var wg sync.WaitGroup
			for step := 1; ; step++ {
				f := st.newFamily(t, fmt.Sprintf("r%d", step))
				names, done := st.killAt(t, dir, taking.deed, f.root(), step)
				if done {
					taking.done(f, t, "unharmed")
					t.Logf("killed %d times, before each of these changes:\n%s", step-1, strings.Join(names, "\n"))
					break
				}
				what := fmt.Sprintf("killed before change %d", step)
				if step == 1 {
					f.untouched(t, what)
				} else {
					taking.denied(f, t, what)
				}
				wg.Go(func() { // each may wait for connections that were under way
					err := deeds()[taking.deed](t.Context(), st.a, st.Space(), f.root())
					if err != nil && !errors.Is(err, wire.ErrNotFound) {
						t.Errorf("%s: again: %v", what, err)
					}
					taking.done(f, t, what)
				})
			}
			wg.Wait()
		})
	}
}

// TestSweeperFinishesWhatWasCut ends the process, so far as the broker and the store can tell, before each of those changes, and
// leaves the rest to the sweep of another. It takes place on fake time: a sweep leaves alone what is younger than 15 s, and may
// wait for connections that were under way.
func TestSweeperFinishesWhatWasCut(t *testing.T) {
	for _, taking := range takings {
		t.Run(taking.name, func(t *testing.T) {
			cotaltest.Bubble(t, func(t *testing.T) {
				st := newStage(t, memstore.New(), taking.people, false)
				var cut []*family
				for step, done := 1, false; !done; step++ {
					f := st.newFamily(t, fmt.Sprintf("r%d", step))
					if done = st.cutAt(t, taking.deed, f.root(), step); done {
						taking.done(f, t, "unharmed")
					} else if step == 1 {
						f.untouched(t, "cut before the first change")
					} else {
						cut = append(cut, f)
					}
				}
				sw := st.a.NewSweeper(st.Space())
				if n, err := sw.Sweep(t.Context(), nil); n != 0 || err != nil {
					t.Errorf("Sweep at once = %d, %v, want nothing", n, err)
				}
				time.Sleep(16 * time.Second)
				n, err := sw.Sweep(t.Context(), nil)
				if err != nil {
					t.Errorf("Sweep: %v", err)
				}
				t.Logf("cut before each of %d changes; the sweep finished %d", len(cut)+1, n)
				for i, f := range cut {
					taking.done(f, t, fmt.Sprintf("cut before change %d", i+2))
				}
			})
		})
	}
}

// cutAt does a deed as an authority of its own that loses everything before its step-th change. It reports whether there were
// fewer.
func (st *stage) cutAt(t *testing.T, what string, p wire.Principal, step int) (done bool) {
	t.Helper()
	tp := &tapped{open: func() (net.Conn, error) { return st.InProcess().InProcessConn() }}
	tp.steps = &steps{left: step, die: tp.cut}
	m, err := newMortal(t.Context(), st.Store(), tp)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	tp.steps.arm()
	err = deeds()[what](t.Context(), m.Authority, st.Space(), p)
	if done = len(tp.steps.seen()) < step; done && err != nil {
		t.Fatalf("%s of %s: %v", what, p, err)
	}
	return done
}

// untouched checks that nothing has happened yet.
func (f *family) untouched(t *testing.T, what string) {
	t.Helper()
	if g, n := f.grantOf(t, f.root()), f.alive(t); g.State != trust.GrantActive || g.Epoch != 1 || n != len(f.creds) {
		t.Errorf("%s: the grant is %s of epoch %d and %d of %d connections are alive, want nothing done", what, g.State, g.Epoch, n, len(f.creds))
	}
}

// denied checks that nothing is handed out any more.
func (f *family) denied(t *testing.T, what string) {
	t.Helper()
	if f.people {
		if err := f.refused(t); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return
	}
	if _, err := f.a.Issue(t.Context(), auth.Request{Space: f.Space(), Actor: f.root().Actor, Renew: true}); err == nil {
		t.Errorf("%s: a credential was handed out", what)
	}
}

// marked checks that the grant says what is left to do, or that nothing is.
func (f *family) marked(t *testing.T, what string) {
	t.Helper()
	if g := f.grantOf(t, f.root()); g.Epoch != 2 || g.Refusing == 0 && f.refused(t) != nil {
		t.Errorf("%s: epoch %d, mark %d, and what was handed out before is accepted", what, g.Epoch, g.Refusing)
	}
}

// narrowed checks that nobody has more than the narrower grant, and that the record says so.
func (f *family) narrowed(t *testing.T, what string) {
	t.Helper()
	g := f.grantOf(t, f.root())
	if g.State != trust.GrantActive || g.Refusing != 0 || g.Epoch != 2 || !slices.Equal(g.AllowSubscribe, []string{"team.b"}) {
		t.Errorf("%s: grant = %s, epoch %d, mark %d, %q", what, g.State, g.Epoch, g.Refusing, g.AllowSubscribe)
	}
	if n := f.alive(t); n != 0 {
		t.Errorf("%s: %d connections of before are alive", what, n)
	}
	if err := f.refused(t); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if !f.people {
		return
	}
	f.noted(t, what, g.Lifecycle(), space.ActionNarrow)
	nc, err := f.knock(t, f.bearer(t, g))
	if err != nil {
		t.Errorf("%s: a bearer of the narrower grant: %v", what, err)
		return
	}
	nc.Close()
}
