package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/secret/filestore"
	"github.com/cotal-go/cotal/trust"
)

// crowd is how many endpoints share the memory that they cost the broker.
const crowd = 500

// daemon is a mesh in a process of its own, brought up by the cotal program.
type daemon struct {
	cmd    *exec.Cmd
	client *cotal.NodeClient
	url    string
	began  time.Time
	ready  time.Duration
}

// daemon runs `cotal up` in a fresh folder and waits until it says that it serves.
func (l *lab) daemon(ctx context.Context) (*daemon, error) {
	dir, err := os.MkdirTemp(l.dir, "up-")
	if err != nil {
		return nil, fmt.Errorf("create folder: %w", err)
	}
	d := &daemon{cmd: exec.CommandContext(ctx, l.opts.Executable, "up", "--json", "--space", string(benchSpace))}
	d.cmd.Dir = dir
	d.cmd.Env = []string{"HOME=" + dir, "COTAL_HOME=" + filepath.Join(dir, "home"), "PATH=" + os.Getenv("PATH")}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("open output: %w", err)
	}
	d.began = time.Now()
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %q: %w", l.opts.Executable, err)
	}
	r := bufio.NewReader(out)
	line, err := r.ReadBytes('\n')
	d.ready = time.Since(d.began)
	go func() { _, _ = io.Copy(io.Discard, r) }()
	var first struct {
		URL string `json:"url"`
	}
	if err == nil {
		err = json.Unmarshal(line, &first)
	}
	if err != nil {
		d.stop()
		return nil, fmt.Errorf("read what up says: %w", err)
	}
	d.url = first.URL
	store, err := filestore.New(filepath.Join(dir, ".cotal"))
	if err == nil {
		d.client, err = cotal.DialNode(ctx, d.url, store, nil)
	}
	if err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

func (d *daemon) stop() {
	if d.client != nil {
		_ = d.client.Close()
	}
	_ = d.cmd.Process.Signal(os.Interrupt)
	_ = d.cmd.Wait()
}

func (d *daemon) issue(ctx context.Context, name string) (*trust.Credentials, error) {
	return d.client.Authority().Issue(ctx, auth.Request{Space: benchSpace, Actor: name, Subscribe: []string{">"}, Publish: []string{">"}})
}

// process measures whole processes: from start to ready and to the first stored message, memory at rest, what a grant
// costs the broker with its queues, and what a connected endpoint costs it on top, the latter beside bare connections with
// the same subscriptions.
func (l *lab) process(ctx context.Context) ([]Result, error) {
	ready := series{name: "up to ready", unit: "ms", limit: 300}
	first := series{name: "up to first stored message", unit: "ms"}
	idle := series{name: "memory at rest", unit: "MB", limit: 80}
	grant := series{name: "memory per grant", unit: "KB"} // its two queues, whether or not anybody is connected
	each := series{name: "memory per endpoint", unit: "KB", limit: 200, smaller: true}
	out := map[string]*Result{}
	add := func(s series, ours, raw float64) {
		if out[s.name] == nil {
			out[s.name] = &Result{Name: "process " + s.name, Unit: s.unit}
		}
		if ours > 0 {
			out[s.name].Ours = append(out[s.name].Ours, ours)
		}
		if raw > 0 {
			out[s.name].Raw = append(out[s.name].Raw, raw)
		}
	}
	for round := range l.opts.Rounds {
		l.opts.Progress(fmt.Sprintf("process: round %d of %d", round+1, l.opts.Rounds))
		for _, raw := range []bool{false, true} {
			d, err := l.daemon(ctx)
			if err != nil {
				return nil, err
			}
			fig, err := d.measure(ctx, raw)
			d.stop()
			if err != nil {
				return nil, err
			}
			if raw {
				add(each, 0, fig.each)
				continue
			}
			add(ready, float64(d.ready)/1e6, 0)
			add(first, fig.first, 0)
			add(idle, fig.idle, 0)
			add(grant, fig.grant, 0)
			add(each, fig.each, 0)
		}
	}
	var res []Result
	for _, s := range []series{ready, first, idle, grant, each} {
		if r := out[s.name]; r != nil && len(r.Ours) > 0 {
			r.settle(s)
			res = append(res, *r)
		}
	}
	return res, nil
}

type processFigures struct{ first, idle, grant, each float64 }

func (d *daemon) measure(ctx context.Context, raw bool) (fig processFigures, err error) {
	sender, err := d.issue(ctx, "sender")
	if err != nil {
		return fig, err
	}
	ep, err := endpoint.Connect(ctx, d.url, endpoint.Static(sender), &endpoint.Options{Name: "sender"})
	if err != nil {
		return fig, err
	}
	if _, err = ep.Post(ctx, "general", draft()); err != nil {
		return fig, err
	}
	fig.first = float64(time.Since(d.began)) / 1e6
	if err := ep.Close(); err != nil {
		return fig, err
	}
	if err := rest(ctx); err != nil {
		return fig, err
	}
	before := resident(d.cmd.Process.Pid)
	if before == 0 {
		return fig, nil // this system does not tell
	}
	fig.idle = float64(before) / 1e6
	all := make([]*trust.Credentials, crowd)
	for i := range all {
		if all[i], err = d.issue(ctx, fmt.Sprintf("crowd_%d", i)); err != nil {
			return fig, err
		}
	}
	if err := rest(ctx); err != nil {
		return fig, err
	}
	granted := resident(d.cmd.Process.Pid)
	fig.grant = float64(granted-before) / 1e3 / crowd
	var c closers
	defer c.close()
	for _, creds := range all {
		if err := d.connect(ctx, creds, raw, &c); err != nil {
			return fig, err
		}
	}
	if err := rest(ctx); err != nil {
		return fig, err
	}
	fig.each = float64(resident(d.cmd.Process.Pid)-granted) / 1e3 / crowd
	return fig, nil
}

// connect adds one participant that listens to a channel and its direct messages.
func (d *daemon) connect(ctx context.Context, creds *trust.Credentials, raw bool, c *closers) error {
	if !raw {
		ep, err := endpoint.Connect(ctx, d.url, endpoint.Static(creds), &endpoint.Options{Name: creds.Identity().Actor})
		if err != nil {
			return err
		}
		c.add(func() { _ = ep.Close() })
		if _, err := ep.Listen(ctx, "general", func(*endpoint.Delivery) {}); err != nil {
			return err
		}
		return ep.HandleDirect(ctx, func(*endpoint.Delivery) {})
	}
	nc, err := nats.Connect(d.url, rawOptions(creds)...)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	c.add(nc.Close)
	p, err := newRawPeer(nc, creds)
	if err != nil {
		return err
	}
	if err := p.listen("cotal.bench.live.*.*.general", newTally()); err != nil {
		return err
	}
	id := creds.Identity()
	stop, err := p.consume(ctx, "DM_bench", fmt.Sprintf("dm_local-%s-%s", id.Actor, id.UID), newTally(), jetstream.PullMaxMessages(256))
	if err != nil {
		return err
	}
	c.add(stop)
	return nil
}

// rest lets a process settle before its memory is read.
func rest(ctx context.Context) error {
	t := time.NewTimer(3 * time.Second)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// resident is the resident memory of a process in bytes, 0 where the system does not say.
func resident(pid int) int64 {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kb, _ := strconv.ParseInt(f[1], 10, 64)
			return kb * 1024
		}
	}
	return 0
}
