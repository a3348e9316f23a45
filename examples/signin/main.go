// Command signin is a program that has users of its own, such as a web service, and gives each of them a place in a mesh that it
// embeds. It signs its users in by its own means, serves the exchange under its own address, and grants and takes away while
// they work.
//
//	go run ./examples/signin
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	space = "shop"
	// site is what the program calls itself as the issuer of its users' sessions.
	site = "https://shop.example"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "signin:", err)
		os.Exit(1)
	}
}

// sessions are the users who are signed in at the program, by the word in their cookie. A real program has a store of them.
type sessions map[string]string

// Verify implements exchange.Identity: a session word stands where an identity token would.
func (s sessions) Verify(_ context.Context, word string) (oidc.Claims, error) {
	user, ok := s[word]
	if !ok {
		return oidc.Claims{}, trust.Deny(wire.CodeUnauthenticated, trust.ReasonSignature, "no such session; sign in at %s", site)
	}
	return oidc.Claims{Issuer: site, Subject: user, Expires: time.Now().Add(time.Hour)}, nil
}

func run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "cotal-signin-")
	if err != nil {
		return fmt.Errorf("create state folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	address := "http://" + listener.Addr().String()
	store := memstore.New()
	node := cotal.New(store, &cotal.Options{
		StateDir: dir, Port: broker.RandomPort, Transport: broker.Plaintext(), Spaces: []string{space},
		People: cotal.PeopleOptions{
			// The pin says whose people these are. With Identity nothing is fetched from it.
			Provider: &oidc.Pin{
				Issuer: site, Audience: space, ClientID: space, JWKSURI: site + "/jwks", Algorithms: []string{"EdDSA"}, Shape: oidc.ShapeOIDC,
			},
			Identity:   func(string) exchange.Identity { return sessions{"cookie-of-ada": "user-17"} },
			MountedURL: func(string) string { return address },
		},
	})
	served, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- node.Run(served) }()
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
	web := &http.Server{Handler: node.ExchangeHandler(space), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = web.Serve(listener) }()
	defer func() { err = errors.Join(err, web.Close()) }()
	owners, err := trust.LoadOwnerSecret(ctx, store, space)
	if err != nil {
		return err
	}
	return story(ctx, out, node, owners, address)
}

// story is one user's time in the mesh.
func story(ctx context.Context, out io.Writer, node *cotal.Node, owners trust.OwnerSecret, address string) error {
	owner, err := owners.Owner(site, "user-17")
	if err != nil {
		return err
	}
	ada := auth.GrantRequest{Space: space, Owner: owner, Actor: "ada", Subscribe: []string{"general"}, Publish: []string{"general"}}
	if _, err := node.Authority().Grant(ctx, ada); err != nil {
		return err
	}
	// What follows is the user's program: it has an address and a session.
	x, err := login.NewExchange(&login.ExchangeOptions{URL: address})
	if err != nil {
		return err
	}
	source := endpoint.SourceFunc(func(ctx context.Context) (*trust.Credentials, error) {
		b, err := x.Human(ctx, login.HumanRequest{IDToken: func() string { return "cookie-of-ada" }})
		if err != nil {
			return nil, err
		}
		return b.Credentials()
	})
	closed := make(chan string, 16)
	ep, err := endpoint.Connect(ctx, node.URL(), source, &endpoint.Options{OnEvent: func(e endpoint.Event) {
		if failed, ok := e.(endpoint.EventRenewalFailed); ok {
			if reason := trust.ReasonOf(failed.Err); reason != "" { // else it could not ask, and asks again
				closed <- string(reason)
			}
		}
	}})
	if err != nil {
		return err
	}
	defer func() { _ = ep.Close() }()
	if _, err := ep.Post(ctx, "general", endpoint.Text("hello from the shop")); err != nil {
		return err
	}
	fmt.Fprintln(out, "ada posted, signed in by the shop")
	if _, err := x.Human(ctx, login.HumanRequest{IDToken: func() string { return "a guessed cookie" }}); err == nil {
		return errors.New("a guessed session was let in")
	}
	fmt.Fprintln(out, "a guessed session is refused")
	// The shop closes her account: she is out at once, with the reason.
	if _, err := node.Authority().Revoke(ctx, space, wire.Principal{Owner: owner, Actor: "ada"}); err != nil {
		return err
	}
	select {
	case reason := <-closed:
		fmt.Fprintln(out, "ada is out:", reason)
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
