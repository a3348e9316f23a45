// Package brokertest is the behaviour that every broker under broker.Control must show, whoever runs it.
//
// [Run] takes a function that opens a broker for given trust records and drives it through a broker.Control and
// ordinary client connections:
//
//	brokertest.Run(t, func(t testing.TB, a *mint.Authority) *brokertest.Broker { … })
//
// The embedded broker and an external nats-server process both pass it. Nothing in it waits for a fixed time; what
// must happen at once is there when the call that causes it returns. The package starts no goroutine that outlives a test.
package brokertest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// Broker is a running broker under test.
type Broker struct {
	// URL reaches it over the network.
	URL string
	// Control administers it; it must stay usable after Restart.
	Control *broker.Control
	// Restart ends the broker and starts it again on the same address and the same store, with the account
	// records as they are then.
	Restart func(t testing.TB)
}

// Opener starts a broker that trusts the authority and knows the accounts of all its spaces. It registers its own
// clean-up.
type Opener func(t testing.TB, a *mint.Authority) *Broker

// patience bounds every wait, of what must come in the end.
const patience = time.Minute

// Source hands out control credentials of an authority.
func Source(a *mint.Authority) broker.Source {
	return func(ctx context.Context) (*trust.Credentials, error) {
		return a.SystemUser(ctx, mint.SystemRequest{Kind: trust.SystemControl})
	}
}

// Trust is what an embedded broker needs to run under an authority, read from its records.
func Trust(ctx context.Context, a *mint.Authority) (broker.Trust, error) {
	t := broker.Trust{OperatorJWT: a.OperatorJWT(), SystemPublic: a.SystemPublic(), SystemJWT: a.SystemJWT(), Accounts: map[string]string{}}
	spaces, err := a.Spaces(ctx)
	if err != nil {
		return broker.Trust{}, err
	}
	for _, s := range spaces {
		rec, err := a.Account(ctx, s)
		if err != nil {
			return broker.Trust{}, err
		}
		t.Accounts[rec.Public] = rec.JWT
	}
	return t, nil
}

// Run runs the suite.
func Run(t *testing.T, open Opener) {
	for _, tc := range []struct {
		name string
		test func(*testing.T, *bench)
	}{
		{"ping_tells_who_serves", pingTellsWhoServes},
		{"account_is_usable_at_once", accountIsUsableAtOnce},
		{"limits_change_live", limitsChangeLive},
		{"spaces_do_not_meet", spacesDoNotMeet},
		{"revocation_drops_and_holds", revocationDropsAndHolds},
		{"full_revocation_list_fits", fullRevocationListFits},
		{"removal_drops_and_holds", removalDropsAndHolds},
		{"listing_names_everybody", listingNamesEverybody},
		{"kick_is_not_a_ban", kickIsNotABan},
		{"eviction_is_proved", evictionIsProved},
		{"eviction_is_complete_or_fails", evictionIsCompleteOrFails},
		{"eviction_says_when_it_fails", evictionSaysWhenItFails},
		{"notices_tell_who_came_and_went", noticesTellWhoCameAndWent},
		{"notices_survive_a_renewal", noticesSurviveARenewal},
		{"missed_notices_are_told", missedNoticesAreTold},
		{"observer_changes_nothing", observerChangesNothing},
		{"watcher_sees_one_account", watcherSeesOneAccount},
		{"older_claims_are_read_back", olderClaimsAreReadBack},
		{"largest_credential_fits", largestCredentialFits},
		{"control_survives_a_restart", controlSurvivesARestart},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, err := mint.Init(t.Context(), memstore.New(), nil)
			if err != nil {
				t.Fatalf("make trust: %v", err)
			}
			tc.test(t, &bench{t: t, authority: a, Broker: open(t, a)})
		})
	}
}

// bench is one broker and its authority in one test.
type bench struct {
	t         *testing.T
	authority *mint.Authority
	*Broker
}

func (b *bench) ctx() context.Context {
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	b.t.Cleanup(cancel)
	return ctx
}

// put pushes the record of a space.
func (b *bench) put(rec trust.AccountRecord) {
	b.t.Helper()
	if err := b.Control.PutAccount(b.ctx(), rec.Public, rec.JWT); err != nil {
		b.t.Fatalf("PutAccount: %v", err)
	}
}

// space adds a space while the broker runs.
func (b *bench) space(s wire.Space, limits *mint.Limits) trust.AccountRecord {
	b.t.Helper()
	rec, err := b.authority.AddSpace(b.ctx(), s, limits)
	if err != nil {
		b.t.Fatalf("AddSpace(%q): %v", s, err)
	}
	b.put(rec)
	return rec
}

// user mints a credential of a profile for local.actor.
func (b *bench) user(s wire.Space, p trust.Profile, actor string) *trust.Credentials {
	b.t.Helper()
	r := mint.UserRequest{Space: s, Profile: p, Principal: wire.Principal{Owner: wire.LocalOwner, Actor: actor}}
	if p == trust.Agent {
		r.Subscribe, r.Publish = []string{"general"}, []string{"general"}
	}
	creds, err := b.authority.User(b.ctx(), r)
	if err != nil {
		b.t.Fatalf("mint %s %q: %v", p, actor, err)
	}
	return creds
}

// client is a connection that records what happens to it.
type client struct {
	*nats.Conn
	creds    *trust.Credentials
	id       uint64 // as the broker counts
	lost     chan struct{}
	returned chan struct{}
	reasons  chan error
}

// dial connects with a credential. It reconnects once every few milliseconds, as an eager client would.
func (b *bench) dial(creds *trust.Credentials, opts ...nats.Option) (*client, error) {
	c := &client{creds: creds, lost: make(chan struct{}, 100), returned: make(chan struct{}, 100), reasons: make(chan error, 100)}
	all := append([]nats.Option{
		nats.UserJWT(func() (string, error) { return creds.JWT(), nil }, creds.Sign),
		nats.CustomInboxPrefix(wire.InboxPrefix(creds.Identity().Inbox)), nats.Name(creds.Identity().Actor), nats.Timeout(patience),
		nats.ReconnectWait(5 * time.Millisecond), nats.ReconnectJitter(0, 0), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { offer(c.lost, struct{}{}) }),
		nats.ReconnectHandler(func(*nats.Conn) { offer(c.returned, struct{}{}) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { offer(c.reasons, err) }),
	}, opts...)
	var err error
	c.Conn, err = nats.Connect(b.URL, all...)
	if err != nil {
		return nil, err
	}
	b.t.Cleanup(c.Close)
	c.id, err = c.GetClientID()
	return c, err
}

// offer records an event without ever holding up the client library.
func offer[T any](ch chan T, v T) {
	select {
	case ch <- v:
	default:
	}
}

func (b *bench) connect(creds *trust.Credentials, opts ...nats.Option) *client {
	b.t.Helper()
	c, err := b.dial(creds, opts...)
	if err != nil {
		b.t.Fatalf("connect as %v: %v", creds, err)
	}
	return c
}

// refused checks that a credential cannot connect.
func (b *bench) refused(creds *trust.Credentials) {
	b.t.Helper()
	c, err := b.dial(creds)
	if c != nil {
		b.t.Errorf("%v connected", creds)
		return
	}
	if !errors.Is(err, nats.ErrAuthorization) && !errors.Is(err, nats.ErrAuthRevoked) {
		b.t.Errorf("connect as %v = %v, want an authorization violation", creds, err)
	}
}

// dropped wants the broker to have ended connections of an account by now, and waits until their clients are told.
func (b *bench) dropped(account string, clients ...*client) {
	b.t.Helper()
	all, err := b.Control.Connections(b.ctx(), account)
	if err != nil {
		b.t.Fatalf("Connections: %v", err)
	}
	for _, c := range clients {
		if slices.ContainsFunc(all, func(l broker.Connection) bool { return l.CID == c.id }) {
			b.t.Errorf("connection %d of %v is still there", c.id, c.creds)
		}
		select {
		case <-c.lost:
		case <-b.ctx().Done():
			b.t.Fatalf("connection %d of %v was not dropped", c.id, c.creds)
		}
	}
}

// untouched checks that a connection has not been lost since it was made.
func (b *bench) untouched(c *client) {
	b.t.Helper()
	if err := c.FlushWithContext(b.ctx()); err != nil || len(c.lost) > 0 {
		b.t.Errorf("connection of %v was disturbed: %v, lost %d times", c.creds, err, len(c.lost))
	}
}

// stream creates the channel stream of a space.
func (b *bench) stream(c *client, s wire.Space) error {
	b.t.Helper()
	js, err := jetstream.New(c.Conn)
	if err != nil {
		b.t.Fatal(err)
	}
	_, err = js.CreateStream(b.ctx(), jetstream.StreamConfig{Name: wire.ChatStream(s), Subjects: []string{chatSubjects(b.t, s)}, MaxBytes: 1 << 20})
	return err
}

func chatSubjects(t testing.TB, s wire.Space) string {
	t.Helper()
	filter, err := wire.ChannelFilter(s, ">")
	if err != nil {
		t.Fatal(err)
	}
	return filter
}

// post stores a message on channel general and returns its sequence.
func (b *bench) post(c *client, s wire.Space) uint64 {
	b.t.Helper()
	subject, err := wire.ChannelSubject(s, c.creds.Identity().Principal, "general")
	if err != nil {
		b.t.Fatal(err)
	}
	js, err := jetstream.New(c.Conn)
	if err != nil {
		b.t.Fatal(err)
	}
	ack, err := js.Publish(b.ctx(), subject, []byte("hello"))
	if err != nil {
		b.t.Fatalf("post as %v: %v", c.creds, err)
	}
	return ack.Sequence
}

// connected lists the actors that are connected to an account, in order.
func (b *bench) connected(account string) []string {
	b.t.Helper()
	all, err := b.Control.Connections(b.ctx(), account)
	if err != nil {
		b.t.Fatalf("Connections: %v", err)
	}
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return names
}
