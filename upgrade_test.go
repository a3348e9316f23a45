package cotal_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// runNode runs fn against a node that is stopped in order afterwards.
func runNode(t *testing.T, store *memstore.Store, opts cotal.Options, fn func(n *cotal.Node)) {
	t.Helper()
	n := cotal.New(store, &opts)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	select {
	case <-n.Ready():
	case err := <-done:
		cancel()
		t.Fatalf("start node: %v", err)
	}
	fn(n)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestSpacesOfTheBuildBeforeComeUp: a space whose account the build before signed, without the profiles and rights of this
// one, serves with all of them when a node starts over it, also when nobody names it; its queues take the present
// shape although the node before ended in order, and a credential of before goes on.
func TestSpacesOfTheBuildBeforeComeUp(t *testing.T) {
	t.Parallel()
	const old = wire.Space("old")
	dir, store := t.TempDir(), memstore.New()
	opts := cotal.Options{StateDir: dir, NoListen: true, Spaces: []string{string(old)}}
	var creds *trust.Credentials
	runNode(t, store, opts, func(n *cotal.Node) {
		var err error
		if creds, err = n.Authority().Issue(t.Context(), auth.Request{Space: old, Actor: "ada"}); err != nil {
			t.Fatal(err)
		}
		unbind(t, n, old, creds)
		as(t, n, old, trust.Teardown, func(js jetstream.JetStream) {
			if err := js.DeleteStream(t.Context(), wire.AuditStream(old)); err != nil {
				t.Fatal(err)
			}
		})
	})
	signedByTheBuildBefore(t, store, old)
	orderly := filepath.Join(dir, "orderly")
	boot, err := os.ReadFile(orderly)
	if err == nil { // the build before wrote the boot alone
		boot, _, _ = bytes.Cut(boot, []byte(" "))
		err = os.WriteFile(orderly, boot, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	opts.Spaces = []string{"main"}
	runNode(t, store, opts, func(n *cotal.Node) {
		if _, _, err := n.Authority().DeadLetters(t.Context(), old, 0, 0); err != nil {
			t.Errorf("dead letters of the old space = %v", err)
		}
		as(t, n, old, trust.Authority, func(js jetstream.JetStream) {
			event := space.AuditEvent{By: "test", Action: space.ActionConfigure, Outcome: space.OutcomeOK}
			if err := space.NewAudit(js, old).Append(t.Context(), event); err != nil {
				t.Errorf("audit record of the old space = %v", err)
			}
		})
		as(t, n, old, trust.Supervisor, func(jetstream.JetStream) {})
		nc, err := n.Dial(t.Context(), creds)
		if err != nil {
			t.Fatalf("the credential of before: %v", err)
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		queue, err := js.Consumer(t.Context(), wire.DirectStream(old), wire.DirectDurable(creds.Identity().Lifecycle))
		if err != nil {
			t.Fatal(err)
		}
		if c := queue.CachedInfo().Config; c.MaxDeliver != wire.MaxDeliveries {
			t.Errorf("the queue hands over %d times, want %d", c.MaxDeliver, wire.MaxDeliveries)
		}
	})
}

// unbind gives the queue of a credential the shape of the build before, in which nothing bounded it.
func unbind(t *testing.T, n *cotal.Node, s wire.Space, creds *trust.Credentials) {
	t.Helper()
	as(t, n, s, trust.Authority, func(js jetstream.JetStream) {
		queue, err := js.Consumer(t.Context(), wire.DirectStream(s), wire.DirectDurable(creds.Identity().Lifecycle))
		if err != nil {
			t.Fatal(err)
		}
		c := queue.CachedInfo().Config
		c.MaxDeliver, c.BackOff = -1, nil
		if _, err := js.UpdateConsumer(t.Context(), wire.DirectStream(s), c); err != nil {
			t.Fatal(err)
		}
	})
}

// as calls fn with a connection of a role of the deployment.
func as(t *testing.T, n *cotal.Node, s wire.Space, p trust.Profile, fn func(js jetstream.JetStream)) {
	t.Helper()
	service, err := n.Authority().ServiceCredential(t.Context(), s, p, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := n.Dial(t.Context(), service)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	fn(js)
}

// signedByTheBuildBefore takes from the account of a space what later builds added: the keys of the undertaker and of the supervisor, a
// right of delivery, and everything about the audit stream and the endpoint auth.
func signedByTheBuildBefore(t *testing.T, store *memstore.Store, s wire.Space) {
	t.Helper()
	get := func(key string) []byte {
		data, err := store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	broker, err := trust.DecodeBrokerRecord(get(trust.BrokerKey))
	if err != nil {
		t.Fatal(err)
	}
	rec, err := trust.DecodeAccountRecord(get(trust.AccountKey(s)), s, broker)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := jwt.DecodeAccountClaims(rec.JWT)
	if err != nil {
		t.Fatal(err)
	}
	later := []trust.Profile{trust.Undertaker, trust.Supervisor}
	rec.Keys = slices.DeleteFunc(rec.Keys, func(k trust.KeyRecord) bool {
		if slices.Contains(later, k.Profile) {
			delete(claims.SigningKeys, k.Public)
		}
		return slices.Contains(later, k.Profile)
	})
	for _, scope := range claims.SigningKeys {
		if scope, ok := scope.(*jwt.UserScope); ok {
			scope.Template.Pub.Allow = slices.DeleteFunc(scope.Template.Pub.Allow, func(subject string) bool { return strings.Contains(subject, wire.AuditStream(s)) })
			about := func(subject string) bool {
				return strings.Contains(subject, ".auth.") || strings.Contains(subject, ".eps.") || strings.Contains(subject, ".epm.") || strings.Contains(subject, "tag(mgr)")
			}
			for _, l := range []*jwt.StringList{&scope.Template.Pub.Allow, &scope.Template.Pub.Deny, &scope.Template.Sub.Allow, &scope.Template.Sub.Deny} {
				*l = slices.DeleteFunc(*l, about)
			}
		}
		if scope, ok := scope.(*jwt.UserScope); ok && scope.Role == string(trust.Delivery) {
			scope.Template.Pub.Allow = slices.DeleteFunc(scope.Template.Pub.Allow, func(subject string) bool { return subject == "$JS.API.DIRECT.GET."+wire.DeadStream(s) })
		}
	}
	pair, err := nkeys.FromSeed(get(trust.OperatorSigningKey(broker.Signs(trust.KeyCurrent))))
	if err == nil {
		rec.JWT, err = claims.Encode(pair)
	}
	if err != nil {
		t.Fatal(err)
	}
	data, err := rec.Encode()
	if err == nil {
		err = store.Put(t.Context(), trust.AccountKey(s), data)
	}
	for _, p := range later {
		if err == nil {
			err = store.Delete(t.Context(), trust.SigningKey(s, p))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
