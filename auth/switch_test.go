package auth_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestEnsurePeopleRefusesCredentialFiles: a program that makes a space one of people without a node ends the files of before as well, and
// can go on at once. Doing so again ends nothing.
func TestEnsurePeopleRefusesCredentialFiles(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		a, s, ctx := m.Node().Authority(), m.Space(), t.Context()
		file, err := a.Issue(ctx, auth.Request{Space: s, Actor: "before", Subscribe: []string{">"}})
		if err != nil {
			t.Fatal(err)
		}
		nc, err := m.Node().Dial(ctx, file)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if _, err := a.EnsurePeople(ctx, s); err != nil {
			t.Fatal(err)
		}
		closed(nc)
		if err := connects(t, m, file); !errors.Is(err, wire.ErrUnauthenticated) {
			t.Errorf("a credential file of before = %v, want unauthenticated", err)
		}
		service, err := a.ServiceCredential(ctx, s, trust.Delivery, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.EnsurePeople(ctx, s); err != nil {
			t.Fatal(err)
		}
		if err := connects(t, m, service); err != nil {
			t.Errorf("what was issued after the switch: %v", err)
		}
	})
}

// TestNoCredentialFileOutlivesTheSwitchToPeople: credential files are issued all the while a space becomes one of people. Not one
// that was handed out works after that.
func TestNoCredentialFileOutlivesTheSwitchToPeople(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	a, s, ctx := m.Node().Authority(), m.Space(), t.Context()
	var mu sync.Mutex
	var files []*trust.Credentials
	var issuing sync.WaitGroup
	first := make(chan struct{}, 1)
	for w := range 4 {
		issuing.Go(func() {
			for i := 0; ; i++ {
				creds, err := a.Issue(ctx, auth.Request{Space: s, Actor: fmt.Sprintf("w%d_%d", w, i)})
				switch {
				case trust.ReasonOf(err) == trust.ReasonUserMode || ctx.Err() != nil:
					return
				case err == nil:
					mu.Lock()
					files = append(files, creds)
					mu.Unlock()
					select {
					case first <- struct{}{}:
					default:
					}
				}
			}
		})
	}
	<-first
	pin := oidc.Pin{
		Issuer: "https://idp.example", Audience: "cotal-test", ClientID: "cotal-test", JWKSURI: "https://idp.example/jwks",
		Algorithms: []string{"EdDSA"}, Shape: oidc.ShapeOIDC,
	}
	if err := m.Node().SignIn(ctx, string(s), pin); err != nil {
		t.Fatal(err)
	}
	issuing.Wait()
	alive := 0
	for _, creds := range files {
		if connects(t, m, creds) == nil {
			alive++
		}
	}
	if len(files) == 0 || alive > 0 {
		t.Errorf("%d of %d credential files still work", alive, len(files))
	}
}
