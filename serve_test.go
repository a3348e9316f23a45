package cotal_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// ask reads what delivery serves: the roster, the channels, history.
func ask(t *testing.T, ep *endpoint.Endpoint) {
	t.Helper()
	for _, command := range []string{wire.CommandRoster, wire.CommandChannels, wire.CommandHistory} {
		var args any
		if command == wire.CommandHistory {
			args = wire.HistoryRequest{Channel: "general", Last: 1}
		}
		err := ep.Call(t.Context(), control.Target{Endpoint: wire.DeliveryEndpoint, Command: command}, args, nil)
		if err != nil {
			t.Errorf("%s at %v: %v", command, time.Now(), err)
		}
	}
}

func spaceStatus(t *testing.T, n *cotal.Node) cotal.SpaceStatus {
	t.Helper()
	st, err := n.Status(t.Context())
	if err != nil || len(st.Spaces) != 1 {
		t.Fatalf("status = %+v, %v", st, err)
	}
	return st.Spaces[0]
}

// foreign mints a delivery credential that another operator signed.
func foreign(t *testing.T, s wire.Space) cotal.CredentialSource {
	t.Helper()
	m, err := mint.Init(t.Context(), memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.AddSpace(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context) (*trust.Credentials, error) {
		return m.User(ctx, mint.UserRequest{Space: s, Profile: trust.Delivery, Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "delivery"}})
	}
}

// TestABrokenSuccessorTakesNoPlace breaks the renewal of the delivery role in one way after the other: the instance before it
// serves on, the status says what is wrong, and once the renewal works it happens without anybody's doing.
func TestABrokenSuccessorTakesNoPlace(t *testing.T) {
	dir := t.TempDir()
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, &cotaltest.Options{StateDir: dir})
		var broken atomic.Pointer[cotal.CredentialSource]
		var mute atomic.Bool
		cotal.TamperCredentials(m.Node(), m.Space(), func(good cotal.CredentialSource) cotal.CredentialSource {
			return func(ctx context.Context) (*trust.Credentials, error) {
				if bad := broken.Load(); bad != nil {
					return (*bad)(ctx)
				}
				return good(ctx)
			}
		})
		cotal.MuteSuccessors(m.Node(), m.Space(), &mute)
		ada := m.Endpoint(t, "ada", &cotaltest.Peer{Request: &auth.Request{Subscribe: []string{">"}, Publish: []string{">"}, TTL: 72 * time.Hour}})
		time.Sleep(18*time.Hour - time.Minute)
		check := func(when, reason string) {
			t.Helper()
			ask(t, ada)
			st := spaceStatus(t, m.Node())
			if st.Delivery != "serving" || !strings.Contains(st.Error, reason) || reason == "" && st.Error != "" {
				t.Errorf("status %s = %+v, want serving and the reason %q", when, st, reason)
			}
		}
		check("before the renewal", "")
		for _, way := range []struct {
			name, reason string
			source       cotal.CredentialSource
		}{
			{"without a credential", "the store is locked", func(context.Context) (*trust.Credentials, error) {
				return nil, errors.New("the store is locked")
			}},
			{"with a store that does not answer", "deadline", func(ctx context.Context) (*trust.Credentials, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}},
			{"with a credential that is refused", "credential refused", foreign(t, m.Space())},
			{"with a credential without the rights", "lacks the subscription", func(ctx context.Context) (*trust.Credentials, error) {
				return m.Node().Authority().ServiceCredential(ctx, m.Space(), trust.Probe, 0)
			}},
			{"with an instance that does not answer", "does not answer", nil},
		} {
			broken.Store(&way.source)
			if way.source == nil {
				broken.Store(nil)
				mute.Store(true)
			}
			for range 3 {
				time.Sleep(10 * time.Minute)
				check(way.name, way.reason)
			}
		}
		mute.Store(false)
		time.Sleep(5 * time.Minute)
		for range 8 { // beyond the end of the first credential
			check("after the renewal", "")
			time.Sleep(time.Hour)
		}
		if err := ada.Close(); err != nil {
			t.Error(err)
		}
		m.Stop()
		synctest.Wait()
	})
}

// TestWhatHangsForBothIsNoReason has instances with a check that hangs: one takes the place of another that is as ill, and not of one that is well.
func TestWhatHangsForBothIsNoReason(t *testing.T) {
	dir := t.TempDir()
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, &cotaltest.Options{StateDir: dir})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for name, ill := range map[string]bool{"well": false, "ill": true, "next": true} {
			creds, err := m.Node().Authority().ServiceCredential(ctx, m.Space(), trust.Delivery, 0)
			if err != nil {
				t.Fatal(err)
			}
			nc, err := m.Node().Dial(ctx, creds)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			s := control.New(wire.DeliveryEndpoint, &control.Options{Instance: name})
			if ill {
				s.Check("stuck", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			}
			wg.Go(func() {
				if err := s.Run(ctx, nc, m.Space()); err != nil {
					t.Errorf("serve %s: %v", name, err)
				}
			})
			<-s.Ready()
		}
		if err := cotal.Prove(ctx, m.Node(), m.Space(), "next", "ill"); err != nil {
			t.Errorf("beside one that is as ill: %v", err)
		}
		if err := cotal.Prove(ctx, m.Node(), m.Space(), "next", "well"); err == nil || !strings.Contains(err.Error(), `instance "next" is degraded`) {
			t.Errorf("beside one that is well: %v, want that it is degraded", err)
		}
		cancel()
		wg.Wait()
	})
}

// TestDeliveryServesForThreeDays lets three days pass, with four renewals of the delivery's credential: every request is
// answered, and every mention of a peer that was not there finds it, once.
func TestDeliveryServesForThreeDays(t *testing.T) {
	dir := t.TempDir()
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, &cotaltest.Options{StateDir: dir})
		request := &auth.Request{Subscribe: []string{">"}, Publish: []string{">"}, TTL: 10 * 24 * time.Hour}
		ada := m.Endpoint(t, "ada", &cotaltest.Peer{Request: request})
		creds := m.Credentials(t, "bob", &cotaltest.Peer{Request: request})
		instances := map[string]bool{}
		want := map[string]int{}
		for hour := range 73 {
			ask(t, ada)
			answer, err := ada.Health(t.Context(), wire.DeliveryEndpoint, time.Second, 0)
			if err != nil || len(answer) != 1 || !answer[0].Ready {
				t.Fatalf("hour %d: health = %+v, %v, want one ready instance", hour, answer, err)
			}
			instances[answer[0].Instance] = true
			said := fmt.Sprintf("hour %d", hour)
			want[said] = 1
			if _, err := ada.Post(t.Context(), "general", endpoint.Draft{Parts: []wire.Part{wire.Text(said)}, Mentions: []string{"bob"}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
		}
		if len(instances) != 5 {
			t.Errorf("%d instances served, want 5", len(instances))
		}
		bob := m.Connect(t, creds, nil)
		got := map[string]int{}
		for after := uint64(0); ; {
			var page wire.PullReply
			err := bob.Call(t.Context(), control.Target{Endpoint: wire.DeliveryEndpoint, Command: wire.CommandPull}, wire.PullRequest{Mentions: true, After: after}, &page)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range page.Messages {
				msg, err := wire.DecodeMessage(p.Message)
				if err != nil {
					t.Fatal(err)
				}
				got[msg.Text()]++
			}
			if after = page.Next; after == 0 {
				break
			}
		}
		for said := range want {
			if got[said] != 1 {
				t.Errorf("bob finds %q %d times, want once", said, got[said])
			}
		}
		for _, ep := range []*endpoint.Endpoint{ada, bob} {
			if err := ep.Close(); err != nil {
				t.Error(err)
			}
		}
		m.Stop()
		synctest.Wait()
	})
}

// heldStore is a trust store that calls hold before it writes.
type heldStore struct {
	*memstore.Store
	hold func()
}

func (s *heldStore) Put(ctx context.Context, key string, value []byte) error {
	s.hold()
	return s.Store.Put(ctx, key, value)
}

func (s *heldStore) Create(ctx context.Context, key string, value []byte) error {
	s.hold()
	return s.Store.Create(ctx, key, value)
}

func (s *heldStore) CompareAndSwap(ctx context.Context, key string, old, new []byte) error {
	s.hold()
	return s.Store.CompareAndSwap(ctx, key, old, new)
}

func (s *heldStore) Delete(ctx context.Context, key string) error {
	s.hold()
	return s.Store.Delete(ctx, key)
}

// TestSpacesComeAndGoUnderLoad adds and removes spaces, with members that talk in them, while two others are asked without a
// pause: no request of those fails, or waits for the change, which writes nothing before both were served again.
func TestSpacesComeAndGoUnderLoad(t *testing.T) {
	t.Parallel()
	var changing atomic.Bool // and has not come to a write
	served := []chan struct{}{make(chan struct{}), make(chan struct{})}
	store := &heldStore{memstore.New(), func() {
		if !changing.CompareAndSwap(true, false) {
			return
		}
		for _, c := range served {
			for range 2 { // the first may have begun before
				<-c
			}
		}
	}}
	m := cotaltest.New(t, &cotaltest.Options{Spaces: []string{"steady"}, Store: store})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i, s := range []wire.Space{m.Space(), "steady"} {
		ep := m.Endpoint(t, "ada", &cotaltest.Peer{Space: s})
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := ep.Post(t.Context(), "general", text("x")); err != nil {
					t.Errorf("post in %q: %v", s, err)
				}
				ask(t, ep)
				select {
				case served[i] <- struct{}{}:
				default:
				}
			}
		})
	}
	change := func(what func(ctx context.Context, name string) error, name string) {
		t.Helper()
		changing.Store(true)
		if err := what(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if changing.Load() {
			t.Errorf("%s changed without a write, so nothing is proved", name)
		}
	}
	for round := range 3 {
		for i := range 4 {
			name := wire.Space(fmt.Sprintf("guest_%d", i))
			change(m.Node().AddSpace, string(name))
			guest := m.Endpoint(t, "guest", &cotaltest.Peer{Space: name})
			if _, err := guest.Post(t.Context(), "general", text(fmt.Sprint("round ", round))); err != nil {
				t.Errorf("post in %q: %v", name, err)
			}
			ask(t, guest)
			if i%2 == 0 { // the others are removed with their members connected
				if err := guest.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		for i := range 4 {
			change(m.Node().RemoveSpace, fmt.Sprintf("guest_%d", i))
		}
	}
	cancel()
	wg.Wait()
}
