package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/cotal-go/cotal/endpoint"
)

// idleMembers share the memory that they cost the delivery role.
const idleMembers = 1000

// idle measures what connected members that neither post nor are posted to cost a delivery role in a process of its own.
func (l *lab) idle(ctx context.Context) (Result, error) {
	s := series{name: "delivery memory per member", unit: "KB", limit: 20}
	res := Result{Name: "idle " + s.name, Unit: s.unit}
	for round := range min(l.opts.Rounds, 3) {
		l.opts.Progress(fmt.Sprintf("idle: round %d", round+1))
		each, err := l.idleOnce(ctx)
		if err != nil {
			return res, err
		}
		res.Ours = append(res.Ours, each)
	}
	res.settle(s)
	return res, nil
}

func (l *lab) idleOnce(ctx context.Context) (float64, error) {
	d, err := l.daemon(ctx)
	if err != nil {
		return 0, err
	}
	defer d.stop()
	pid, stop, err := l.serveDelivery(ctx, d)
	if err != nil {
		return 0, err
	}
	defer stop()
	if err := rest(ctx); err != nil {
		return 0, err
	}
	before := resident(pid)
	if before == 0 {
		return 0, fmt.Errorf("this system does not tell the memory of a process")
	}
	var c closers
	defer c.close()
	n := l.count(idleMembers)
	for i := range n {
		creds, err := d.issue(ctx, fmt.Sprintf("idle_%d", i))
		if err != nil {
			return 0, err
		}
		ep, err := endpoint.Connect(ctx, d.url, endpoint.Static(creds), &endpoint.Options{Name: creds.Identity().Actor})
		if err != nil {
			return 0, err
		}
		c.add(func() { _ = ep.Close() })
		if err := join(ctx, ep, "general", func(*endpoint.Delivery) {}, nil); err != nil {
			return 0, err
		}
	}
	if err := rest(ctx); err != nil {
		return 0, err
	}
	return float64(resident(pid)-before) / 1e3 / float64(n), nil
}

// serveDelivery runs `cotal serve delivery` beside a daemon and waits until it serves.
func (l *lab) serveDelivery(ctx context.Context, d *daemon) (pid int, stop func(), err error) {
	return l.serveRole(ctx, d, "delivery")
}

// serveSupervisor runs `cotal serve supervisor` beside that of a daemon and waits until it serves.
func (l *lab) serveSupervisor(ctx context.Context, d *daemon) (pid int, stop func(), err error) {
	return l.serveRole(ctx, d, "supervisor", "--state", filepath.Join(d.cmd.Dir, "apart"))
}

func (l *lab) serveRole(ctx context.Context, d *daemon, role string, flags ...string) (pid int, stop func(), err error) {
	cmd := exec.CommandContext(ctx, l.opts.Executable, append([]string{"serve", role, "--json", "--space", string(benchSpace)}, flags...)...)
	cmd.Dir, cmd.Env = d.cmd.Dir, d.cmd.Env
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, nil, fmt.Errorf("open output: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return 0, nil, fmt.Errorf("start %s: %w", role, err)
	}
	stop = func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}
	r := bufio.NewReader(out)
	if _, err := r.ReadBytes('\n'); err != nil {
		stop()
		return 0, nil, fmt.Errorf("read what serve says: %w", err)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	return cmd.Process.Pid, stop, nil
}
