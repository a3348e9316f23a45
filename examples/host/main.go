// Command host is a second composition root: a program that embeds a mesh for several tenants without the command
// line of cotal. It boots one broker in a folder of its own, serves two spaces, shows that neither sees the other,
// adds a third while the first two talk, removes one, and ends.
//
//	go run ./examples/host
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/wire"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := host(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "host:", err)
		os.Exit(1)
	}
}

// host runs the whole story. The secrets live in memory here; a real host brings its own secret.Store.
func host(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "cotal-host-")
	if err != nil {
		return fmt.Errorf("create state folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	node := cotal.New(memstore.New(), &cotal.Options{StateDir: dir, NoListen: true, Transport: broker.Plaintext(), Spaces: []string{"acme", "globex"}})
	run, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- node.Run(run) }()
	defer func() {
		stop()
		err = errors.Join(err, <-done)
	}()
	select {
	case <-node.Ready():
	case err := <-done:
		done <- nil
		return err
	}
	h := &tenancy{node: node, out: out}
	return h.story(ctx)
}

type tenancy struct {
	node *cotal.Node
	out  io.Writer
}

func (h *tenancy) story(ctx context.Context) error {
	acme, err := h.open(ctx, "acme")
	if err != nil {
		return err
	}
	defer acme.close()
	globex, err := h.open(ctx, "globex")
	if err != nil {
		return err
	}
	defer globex.close()
	for _, r := range []*room{acme, globex} {
		if err := r.talk(ctx, h.out); err != nil {
			return err
		}
	}
	if err := h.crossing(ctx, acme); err != nil {
		return err
	}
	if err := h.node.AddSpace(ctx, "initech"); err != nil {
		return err
	}
	initech, err := h.open(ctx, "initech")
	if err != nil {
		return err
	}
	defer initech.close()
	for _, r := range []*room{initech, acme, globex} {
		if err := r.talk(ctx, h.out); err != nil {
			return err
		}
	}
	globex.close()
	if err := h.node.RemoveSpace(ctx, "globex"); err != nil {
		return err
	}
	_, err = h.node.Authority().Issue(ctx, auth.Request{Space: "globex", Actor: "late"})
	if !errors.Is(err, wire.ErrNotFound) {
		return fmt.Errorf("credential in a removed space: %v, want not-found", err)
	}
	fmt.Fprintln(h.out, "globex removed; a credential for it is refused")
	if err := acme.talk(ctx, h.out); err != nil {
		return err
	}
	fmt.Fprintf(h.out, "spaces now: %v\n", h.node.Spaces())
	return nil
}

// crossing tries to speak in globex with a credential of acme.
func (h *tenancy) crossing(ctx context.Context, acme *room) error {
	if got := acme.heard(); got != 1 {
		return fmt.Errorf("listener of acme heard %d messages, want its own one", got)
	}
	creds, err := h.node.Authority().Issue(ctx, auth.Request{Space: "acme", Actor: "spy", Subscribe: []string{">"}, Publish: []string{">"}})
	if err != nil {
		return err
	}
	nc, err := h.node.Dial(ctx, creds)
	if err != nil {
		return err
	}
	defer nc.Close()
	subject, err := wire.ChannelSubject("globex", creds.Identity().Principal, "general")
	if err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if _, err := nc.RequestWithContext(short, subject, []byte("{}")); err == nil {
		return errors.New("a credential of acme was heard in globex")
	}
	fmt.Fprintln(h.out, "a credential of acme is not heard in globex")
	return nil
}

// room is one space with a speaker and a listener.
type room struct {
	space    string
	ada, bob *endpoint.Endpoint
	got      chan string
	count    int
	said     int
}

func (h *tenancy) open(ctx context.Context, space string) (*room, error) {
	r := &room{space: space, got: make(chan string, 16)}
	for name, ep := range map[string]**endpoint.Endpoint{"ada": &r.ada, "bob": &r.bob} {
		creds, err := h.node.Authority().Issue(ctx, auth.Request{Space: wire.Space(space), Actor: name, Subscribe: []string{"general"}, Publish: []string{"general"}})
		if err != nil {
			return nil, err
		}
		*ep, err = endpoint.Connect(ctx, "", endpoint.Static(creds), &endpoint.Options{Name: name, InProcess: h.node.InProcess()})
		if err != nil {
			return nil, fmt.Errorf("connect %s in %s: %w", name, space, err)
		}
	}
	_, err := r.bob.Join(ctx, "general", func(d *endpoint.Delivery) {
		r.got <- fmt.Sprintf("%s heard %s: %s", space, d.Sender, d.Message.Text())
	}, nil)
	return r, err
}

// talk posts one message and waits until the listener of the same space has it.
func (r *room) talk(ctx context.Context, out io.Writer) error {
	r.said++
	text := fmt.Sprintf("message %d of %s", r.said, r.space)
	if _, err := r.ada.Post(ctx, "general", endpoint.Draft{Parts: []wire.Part{wire.Text(text)}}); err != nil {
		return fmt.Errorf("post in %s: %w", r.space, err)
	}
	select {
	case line := <-r.got:
		r.count++
		fmt.Fprintln(out, line)
		if want := fmt.Sprintf("%s heard local.ada: %s", r.space, text); line != want {
			return fmt.Errorf("got %q, want %q", line, want)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for message in %s: %w", r.space, ctx.Err())
	}
}

func (r *room) heard() int { return r.count + len(r.got) }

func (r *room) close() {
	for _, ep := range []*endpoint.Endpoint{r.ada, r.bob} {
		if ep != nil {
			_ = ep.Close()
		}
	}
}
