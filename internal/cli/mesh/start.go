package mesh

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/internal/buildinfo"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/process"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/supervisor/persona"
	"github.com/cotal-go/cotal/wire"
)

// run boots the mesh here, calls ready once it serves, and serves until ctx ends or somebody asks the node to stop.
// The caller holds the lock of the project.
func (p *plan) run(ctx context.Context, e *command.Env, ready func(UpResult) error) error {
	healed, err := p.leftover()
	if err != nil {
		return err
	}
	e.Progress("starting the mesh of %s", p.project.Root)
	node, done, err := p.boot(ctx, e)
	if err != nil {
		return err
	}
	// From here on the node runs: every way out stops it and waits.
	res, err := p.record(ctx, node, healed)
	if err == nil {
		err = ready(res)
	}
	if err != nil {
		done.stop()
		<-done.ended
		p.forget()
		return err
	}
	<-done.ended
	if done.err == nil { // otherwise the record says to whoever looks that the end was none that anybody asked for
		p.forget()
	}
	p.leftBehind(e, node)
	if done.err != nil {
		return command.Hint(done.err, "start it again: cotal up")
	}
	return nil
}

// running is a node in its goroutine.
type running struct {
	stop  context.CancelFunc
	ended chan struct{}
	err   error // set before ended is closed
}

// boot starts the node on the first port that works out: one that was free a moment ago may be taken by now.
func (p *plan) boot(ctx context.Context, e *command.Env) (*cotal.Node, *running, error) {
	store, err := p.store()
	if err != nil {
		return nil, nil, err
	}
	if err := p.signing.tryPorts(ctx); err != nil {
		return nil, nil, err
	}
	ports := p.ports()
	for i, port := range ports {
		last := i == len(ports)-1
		if err := p.tryPort(ctx, port); err != nil {
			if last || ctx.Err() != nil {
				return nil, nil, err
			}
			continue
		}
		node, r, err := p.start(ctx, e, store, port)
		if err == nil {
			return node, r, nil
		}
		if last || !errors.Is(err, wire.ErrConflict) {
			return nil, nil, p.explain(err)
		}
	}
	return nil, nil, wire.Errorf(wire.CodeInternal, "start mesh: no port to try")
}

// start runs a node and waits until it is ready or has failed.
func (p *plan) start(ctx context.Context, e *command.Env, store secret.Store, port int) (*cotal.Node, *running, error) {
	if port == 0 {
		port = broker.RandomPort
	}
	if err := p.findPin(ctx, e, store); err != nil {
		return nil, nil, err
	}
	agents, err := p.supervisor()
	if err != nil {
		return nil, nil, err
	}
	node := cotal.New(store, &cotal.Options{
		Supervisor: agents, SupervisorElsewhere: p.noAgents && !p.open,
		StateDir: p.stateDir(), Host: p.host, Port: port, Transport: p.transport(), Strict: p.strict, Open: p.open, DeliveryElsewhere: p.apart,
		Spaces: []string{p.space}, People: p.signing.options(), Logger: e.Logger(p.logLevel),
	})
	runCtx, cancel := context.WithCancel(ctx)
	r := &running{stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		defer cancel()
		r.err = node.Run(runCtx)
	}()
	select {
	case <-node.Ready():
		return node, r, nil
	case <-r.ended:
		if r.err == nil {
			r.err = wire.Errorf(wire.CodeCancelled, "start mesh: interrupted before it was ready")
		}
		return nil, nil, r.err
	}
}

func (p *plan) store() (secret.Store, error) {
	if p.open {
		return nil, nil
	}
	return target.OpenStore(p.project)
}

func (p *plan) transport() broker.Transport {
	if p.cert != "" {
		return broker.TLS(p.cert, p.key)
	}
	return broker.Plaintext()
}

// explain adds what a person can do about a start that did not work.
func (p *plan) explain(err error) error {
	switch wire.CodeOf(err) {
	case wire.CodeConflict:
		return command.Hint(err, "choose another port with --port, or end the process that holds it")
	case wire.CodeFailedPrecondition:
		return command.Hint(err, "nothing was started; the records of the project are in "+p.project.Dir)
	}
	return err
}

// leftover looks at the record of a run that holds no lock any more: it ended without being able to say so. That of a copy is about another
// folder's.
func (p *plan) leftover() ([]string, error) {
	if from := p.project.Original(); from != "" {
		healed, err := p.leave(from)
		if err != nil {
			return nil, err
		}
		return healed, p.project.Settle()
	}
	if err := p.project.Settle(); err != nil {
		return nil, err
	}
	old, err := p.project.Run()
	if err != nil {
		// The record only says where a run was. It is replaced, and the person is told.
		return []string{"the record of the last run could not be read and was replaced"}, p.project.ForgetRun()
	}
	if old == nil {
		return nil, nil
	}
	if err := p.project.ForgetRun(); err != nil {
		return nil, err
	}
	return []string{fmt.Sprintf("the last run (pid %d) ended without a clean stop; nothing that was acknowledged is lost", old.PID)}, nil
}

// leave takes away from a copy what leads to processes of its original: two supervisors would end, restart and renew the same agents, and
// people would sign in at the other mesh.
func (p *plan) leave(original string) ([]string, error) {
	agents := target.AllAgentsDir(p.project)
	folders, err := ownFolders(p.project)
	var kept []string
	for _, f := range folders {
		kept = append(kept, f.agents...)
	}
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(p.project.StateDir(), "authority.*.json")) // how the exchange of the original is reached
	if err != nil {
		return nil, fmt.Errorf("look for what signs people in: %w", err)
	}
	for _, path := range append(files, agents, p.project.SupervisorsDir()) {
		if err := os.RemoveAll(path); err != nil {
			return nil, wire.Errorf(wire.CodeFailedPrecondition, "remove %q, which is about processes of %q: %v", path, original, fserr.Cause(err))
		}
	}
	said := fmt.Sprintf("this folder is a copy of %s, whose mesh and agents are left alone", original)
	if len(kept) > 0 {
		said += "; not taken along: " + strings.Join(kept, ", ") + ", which here are names only: cotal revoke <name> frees one"
	}
	return []string{said}, nil
}

// record leaves for other commands where the mesh runs, once it does.
func (p *plan) record(ctx context.Context, node *cotal.Node, healed []string) (UpResult, error) {
	st, err := node.Status(ctx)
	if err != nil {
		return UpResult{}, err
	}
	self, err := process.Self()
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return UpResult{}, fmt.Errorf("identify this process: %w", err)
	}
	st.URL = p.dialURL(st.URL)
	run := config.Run{
		PID: st.PID, Start: self.Start, URL: st.URL, CA: p.cert, TLSName: p.tlsName(st.URL), Spaces: node.Spaces(), Open: p.open,
		Version: buildinfo.Version(), Started: st.Started.UTC().Truncate(time.Second),
	}
	if err := p.project.SaveRun(run); err != nil {
		return UpResult{}, err
	}
	moved := p.moved(ctx, portOf(st.URL))
	if err := p.project.SavePort(portOf(st.URL)); err != nil {
		return UpResult{}, err
	}
	if err := p.project.SaveSettings(p.remember()); err != nil {
		return UpResult{}, err
	}
	mesh := config.Mesh{Root: p.project.Root, URL: run.URL, CA: run.CA, TLSName: run.TLSName, Space: p.space, Spaces: run.Spaces, Open: p.open}
	unlisted := p.machine.Save(mesh)
	res := p.result(st)
	res.State, res.Healed = stateStarted, healed
	if len(healed) > 0 {
		res.State = stateHealed
	}
	p.tell(&res)
	if moved != "" {
		res.Warnings = append(res.Warnings, moved)
	}
	if unlisted != nil {
		res.Warnings = append(res.Warnings, fmt.Sprintf("this mesh is not in the list of this machine's, so only commands inside %s find it: %v", p.project.Root, unlisted))
	}
	if !p.open {
		if res.Seeded, err = persona.Seed(target.PersonasDir(p.project)); err != nil { // the mesh does not need them
			res.Warnings = append(res.Warnings, err.Error())
		}
	}
	return res, nil
}

// dialURL is the address under which this machine reaches the mesh: an address that stands for all of them cannot
// be dialled everywhere.
func (p *plan) dialURL(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	scheme, host := "nats", u.Hostname()
	if p.cert != "" {
		scheme = "tls"
	}
	if host == "0.0.0.0" || host == "::" {
		host = defaultHost
	}
	norm, err := config.ServerURL(scheme + "://" + hostPort(host, u.Port()))
	if err != nil {
		return address
	}
	return norm
}

// tlsName is a name that the certificate is for, when the host of the address is none: a mesh that listens on every
// address of a machine is reached from here by a number that its certificate need not know.
func (p *plan) tlsName(address string) string {
	u, err := url.Parse(address)
	if err != nil || p.cert == "" {
		return ""
	}
	pair, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err != nil || pair.Leaf == nil || pair.Leaf.VerifyHostname(u.Hostname()) == nil {
		return ""
	}
	for _, name := range pair.Leaf.DNSNames {
		return strings.Replace(name, "*", "mesh", 1) // any name below a wildcard will do
	}
	for _, ip := range pair.Leaf.IPAddresses {
		return ip.String()
	}
	return ""
}

func hostPort(host, port string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]:" + port
	}
	return host + ":" + port
}

func (p *plan) result(st cotal.Status) UpResult {
	return UpResult{
		V: command.V1, State: stateRunning, URL: st.URL, Root: p.project.Root, Space: p.space, Spaces: spaceLines(st),
		PID: st.PID, Mode: st.Mode, Storage: st.Durability,
	}
}

func spaceLines(st cotal.Status) []SpaceLine {
	out := make([]SpaceLine, 0, len(st.Spaces))
	for _, s := range st.Spaces {
		out = append(out, SpaceLine{Name: s.Name, State: s.Delivery, Error: s.Error, People: s.People, Supervisor: s.Supervisor, mode: s.Mode})
	}
	return out
}

// forget takes back what record left. Failures are of no use to anybody: the lock decides, not the files.
func (p *plan) forget() {
	_ = p.project.ForgetRun()
	_ = p.machine.Forget(p.project.Root)
}
