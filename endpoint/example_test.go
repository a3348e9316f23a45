package endpoint_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/secret/memstore"
)

// town is a mesh in this process. A program elsewhere names its server, and takes its credential from endpoint.File.
type town struct {
	node *cotal.Node
	stop func()
}

func bootTown() *town {
	dir, err := os.MkdirTemp("", "cotal")
	if err != nil {
		panic(err)
	}
	w := &town{node: cotal.New(memstore.New(), &cotal.Options{
		StateDir: dir, NoListen: true, Transport: broker.Plaintext(), Spaces: []string{"lab"},
	})}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.node.Run(ctx) }()
	w.stop = func() {
		cancel()
		<-done
		_ = os.RemoveAll(dir)
	}
	select {
	case <-w.node.Ready():
	case err := <-done:
		panic(err)
	}
	return w
}

// connect brings a principal into the mesh.
func (w *town) connect(ctx context.Context, actor string, opts *endpoint.Options) *endpoint.Endpoint {
	creds, err := w.node.Authority().Issue(ctx, auth.Request{Space: "lab", Actor: actor, Subscribe: []string{"team"}, Publish: []string{"team"}})
	if err != nil {
		panic(err)
	}
	if opts == nil {
		opts = &endpoint.Options{}
	}
	opts.InProcess = w.node.InProcess()
	ep, err := endpoint.Connect(ctx, "", endpoint.Static(creds), opts)
	if err != nil {
		panic(err)
	}
	return ep
}

// A member is shown what the channel holds, then what comes, and after it was away what it missed.
func ExampleEndpoint_Join() {
	w := bootTown()
	defer w.stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ada, bob := w.connect(ctx, "ada", nil), w.connect(ctx, "bob", nil)
	defer func() { _, _ = ada.Close(), bob.Close() }()
	post := func(text string) {
		if _, err := bob.Post(ctx, "team", endpoint.Text(text)); err != nil {
			fmt.Println(err)
		}
	}

	post("before")
	shown := make(chan struct{})
	show := func(d *endpoint.Delivery) { // a message was handled when its handler has returned
		fmt.Println(d.Sender, d.Message.Text(), d.Replayed)
		shown <- struct{}{}
	}
	m, err := ada.Join(ctx, "team", show, &endpoint.JoinOptions{Replay: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	<-shown
	post("live")
	<-shown
	if err := m.Stop(ctx); err != nil { // m.Leave would end the membership
		fmt.Println(err)
	}
	post("while ada is away")
	if m, err = ada.Join(ctx, "team", show, nil); err != nil {
		fmt.Println(err)
		return
	}
	<-shown
	fmt.Println(m)
	// Output:
	// local.bob before true
	// local.bob live false
	// local.bob while ada is away true
	// membership of channels "team"
}

// A program that looks and goes takes the messages that wait, and says of each when it has dealt with it.
func ExampleEndpoint_ReadDirect() {
	w := bootTown()
	defer w.stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ada, bob := w.connect(ctx, "ada", nil), w.connect(ctx, "bob", nil)
	defer func() { _, _ = ada.Close(), bob.Close() }()
	for i := range 3 {
		if _, err := bob.Direct(ctx, ada.Principal(), endpoint.Text(fmt.Sprint("job ", i+1))); err != nil {
			fmt.Println(err)
		}
	}

	for more := true; more; {
		var messages []*endpoint.Delivery
		var err error
		if messages, more, err = ada.ReadDirect(ctx, 2); err != nil {
			fmt.Println(err)
			return
		}
		for _, d := range messages {
			fmt.Println(d.Message.Text())
			if err := d.Confirm(ctx); err != nil {
				fmt.Println(err)
			}
		}
	}
	// Output:
	// job 1
	// job 2
	// job 3
}

// A message that cannot be handled is given back, to be shown again. After the last attempt its sender is told why.
func ExampleDelivery_NakReason() {
	w := bootTown()
	defer w.stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	undelivered := make(chan endpoint.EventUndelivered, 1)
	bob := w.connect(ctx, "bob", &endpoint.Options{OnEvent: func(e endpoint.Event) {
		if u, ok := e.(endpoint.EventUndelivered); ok {
			undelivered <- u
		}
	}})
	ada := w.connect(ctx, "ada", &endpoint.Options{MaxAttempts: 2})
	defer func() { _, _ = ada.Close(), bob.Close() }()

	err := ada.HandleDirect(ctx, func(d *endpoint.Delivery) {
		fmt.Println("attempt", d.Attempt)
		if err := d.NakReason(ctx, 10*time.Millisecond, "no such file"); err != nil {
			fmt.Println(err)
		}
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := bob.Direct(ctx, ada.Principal(), endpoint.Text("look at notes.txt")); err != nil {
		fmt.Println(err)
		return
	}
	r := (<-undelivered).Recipient
	fmt.Println(r.Principal, r.Stage, r.Reason)
	// Output:
	// attempt 1
	// attempt 2
	// local.ada dead gave up after 2 attempts: no such file
}
