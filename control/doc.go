// Package control is how programs in a space ask each other for things: endpoints that serve commands, and callers.
//
// # Start
//
// An endpoint registers commands, whose contract comes from their Go types, and serves a space on a connection:
//
//	s := control.New("com.acme.deploy", &control.Options{Version: "1.4.0", Logger: log})
//	control.Handle(s, control.Command{Name: "start", Effect: control.Write},
//		func(ctx context.Context, req *control.Request, in StartIn) (StartOut, error) { … })
//	err := s.Run(ctx, nc, space)
//
// A caller needs a connection whose credential permits the command:
//
//	c, err := control.NewCaller(nc, space, self, wire.EndpointRef{Name: "ada"}, nil)
//	err = c.Call(ctx, control.Target{Endpoint: "com.acme.deploy", Command: "start"}, StartIn{…}, &out)
//
// and its error handler tells the caller what the broker refused:
//
//	nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
//		if subject, ok := control.DeniedSubject(err); ok && c.Denied(subject) { return }
//		…
//	})
//
// # What it promises
//
//   - Who asks is what the broker pinned in the request subject. A request that says otherwise in its body is refused.
//   - A reply goes where the request subject says, never to an address that came with the request. A caller takes a
//     reply only from the endpoint it called, under the nonce of that call, and under the instance it named.
//   - Every error says whether the command was executed, not executed, or may have been. Nobody listening is known at
//     once, from the broker; so is a missing permission.
//   - Arguments reach a handler only after they have been checked against the published schema. Describe publishes
//     schemas under the digest of their canonical JSON; a caller may pin the digests it was written for.
//   - An endpoint runs a bounded number of handlers, lets a bounded number of requests wait and refuses the rest as
//     resource-exhausted. One principal gets a share, and principals take turns. Health and describe are answered whatever the load.
//   - A handler that panics, overruns or returns an unknown error costs its caller an answer, never the process. The
//     reason goes to the log; the caller gets the request ID.
//   - Both sides move to a renewed connection without losing or repeating a request: AddConn and RemoveConn, Attach and
//     Detach.
//
// # What it does not
//
// Nothing is stored: a request whose instance dies is gone, and its caller learns that its outcome is unknown. Requests
// are not repeated and not made idempotent; handlers that want that have the request ID. Whether a caller may use a
// command is the broker's decision, by its credential, before the request arrives.
//
// # Concurrency
//
// Everything is safe for concurrent use, but that commands and checks are registered before Run. Handlers run
// concurrently. Service.Run owns every goroutine it starts and returns after them; a handler or check that ignores its
// context holds it up. A Caller starts no goroutine. No two mutexes of the package are held at once, save the one that
// serialises health checks, which is outermost.
package control
