package control_test

import (
	"context"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/wire"
)

type greetIn struct {
	Name string `json:"name" jsonschema:"whom to greet"`
}

type greetOut struct {
	Text string `json:"text"`
}

// An endpoint serves a command, and a caller finds out what there is and uses it.
func Example() {
	srv, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	srv.Start()
	defer srv.WaitForShutdown()
	defer srv.Shutdown()
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer shut(nc)

	s := control.New("com.acme.greeter", nil)
	control.Handle(s, control.Command{Name: "greet", Effect: control.Read, Description: "Greets by name."},
		func(_ context.Context, req *control.Request, in greetIn) (greetOut, error) {
			return greetOut{fmt.Sprintf("hello %s, says %s", in.Name, req.Caller.Principal)}, nil
		})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	stopped := make(chan error)
	go func() { stopped <- s.Run(ctx, nc, "lab") }()
	<-s.Ready()

	me := wire.Lifecycle{Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "ada"}, UID: wire.NewUID()}
	c, err := control.NewCaller(nc, "lab", me, wire.EndpointRef{}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	contract, err := c.Describe(ctx, "com.acme.greeter")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, cmd := range contract.Commands {
		fmt.Println(cmd.Name, cmd.Effect)
	}
	target := control.Target{Endpoint: "com.acme.greeter", Command: "greet"}
	var out greetOut
	if err := c.Call(ctx, target, greetIn{Name: "bob"}, &out); err != nil {
		fmt.Println(err)
	}
	fmt.Println(out.Text)
	fmt.Println(c.Call(ctx, target, map[string]int{"name": 7}, &out))

	stop()
	<-stopped
	err = c.Call(context.Background(), target, greetIn{Name: "bob"}, &out)
	fmt.Println(wire.CodeOf(err), err)
	_ = c.Close()
	// Output:
	// describe read
	// greet read
	// health read
	// hello bob, says local.ada
	// call com.acme.greeter.greet: args.name: is number, want string
	// unavailable call com.acme.greeter.greet: no endpoint "com.acme.greeter" is listening
}
