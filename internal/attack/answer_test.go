package attack_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

// TestLearnMessageIDs shows that what the broker tells a stranger of the last message of a stream is no message's id.
func TestLearnMessageIDs(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	s := m.Space()
	boss := m.Endpoint(t, "boss", nil)
	in := intrude(t, m, m.Credentials(t, "mallory", &cotaltest.Peer{Publish: []string{"own"}, Subscribe: []string{}}))
	me := in.id.Principal
	chosen := endpoint.Text("of the caller's choice")
	chosen.ID = "order-17"
	for _, d := range []endpoint.Draft{endpoint.Text("x"), chosen} {
		for subject, send := range map[string]func() (endpoint.Receipt, error){
			must[string](t)(wire.ChannelSubject(s, me, "own")): func() (endpoint.Receipt, error) { return boss.Post(t.Context(), "team", d) },
			must[string](t)(wire.DirectSubject(s, me, me)):     func() (endpoint.Receipt, error) { return boss.Direct(t.Context(), boss.Principal(), d) },
			must[string](t)(wire.RoleSubject(s, "x", me)):      func() (endpoint.Receipt, error) { return boss.Ask(t.Context(), "vault", d) },
		} {
			sent, err := send()
			if err != nil {
				t.Fatal(err)
			}
			probe := nats.NewMsg(subject)
			probe.Header.Set("Nats-Expected-Last-Msg-Id", "zz")
			got, err := in.nc.RequestMsg(probe, 5*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if text := string(got.Data); !strings.Contains(text, "wrong last msg ID") || strings.Contains(text, sent.ID) {
				t.Errorf("probe of %s after %q was sent = %s, want a refusal without that id", subject, sent.ID, text)
			}
		}
	}
}

// TestForgedAnswer shows that whoever knows the id of finished role work and holds no role cannot make its receipt say that
// it was answered.
func TestForgedAnswer(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	boss := m.Endpoint(t, "boss", nil)
	worker := m.Endpoint(t, "worker", &cotaltest.Peer{Role: "vault"})
	mallory := m.Endpoint(t, "mallory", &cotaltest.Peer{Role: "cleaner"})
	sent := must[endpoint.Receipt](t)(boss.Ask(t.Context(), "vault", endpoint.Text("w")))
	seen := listen(t, worker, true)
	eventually(t, "work", func() bool {
		seen.mu.Lock()
		defer seen.mu.Unlock()
		return len(seen.text) == 1
	})
	answer := endpoint.Text("done!")
	answer.ReplyTo = sent.ID
	if _, err := mallory.Direct(t.Context(), boss.Principal(), answer); err != nil {
		t.Fatal(err)
	}
	byPlace := wire.ReceiptRequest{ID: sent.ID, Kind: "role", Sequence: sent.Sequence}
	named := byPlace
	named.Role = "vault"
	for _, req := range []wire.ReceiptRequest{byPlace, named} {
		eventually(t, "finished work", func() bool {
			r, err := boss.Receipt(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if r.Stage == wire.StageAnswered {
				t.Fatalf("receipt %+v = %+v, which a stranger wrote", req, r)
			}
			return r.Stage == wire.StageGone
		})
	}
	genuine, err := worker.Direct(t.Context(), boss.Principal(), answer)
	if err != nil {
		t.Fatal(err)
	}
	r, err := boss.Receipt(t.Context(), named)
	if err != nil || r.Stage != wire.StageAnswered || r.Recipients[0].Answer != genuine.ID || r.Recipients[0].Principal != "local.worker" {
		t.Errorf("receipt = %+v, %v, want answered by the worker", r, err)
	}
}

// TestReceiptsTellNoEnds shows that a stranger cannot find out by guessing places how much was ever sent to roles, and from
// where on the others are kept: the answer is the same for every place.
func TestReceiptsTellNoEnds(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	boss := m.Endpoint(t, "boss", nil)
	mallory := m.Endpoint(t, "mallory", &cotaltest.Peer{Publish: []string{}, Subscribe: []string{}})
	for range 3 {
		if _, err := boss.Ask(t.Context(), "vault", endpoint.Text("w")); err != nil {
			t.Fatal(err)
		}
		if _, err := boss.Direct(t.Context(), boss.Principal(), endpoint.Text("x")); err != nil {
			t.Fatal(err)
		}
		say(t, boss, "team", "x")
	}
	if _, err := m.Node().Authority().ClearHistory(t.Context(), m.Space(), "team"); err != nil { // moves the beginning of the stream
		t.Fatal(err)
	}
	for _, kind := range []string{"role", "direct", "channel"} {
		want := ""
		for _, place := range []uint64{1, 2, 3, 4, 1000} {
			r, err := mallory.Receipt(t.Context(), wire.ReceiptRequest{ID: "guess", Kind: kind, Sequence: place})
			got := string(r.Stage)
			if err != nil {
				got = err.Error()
			} else if r.Sender != "" || len(r.Recipients) != 1 || r.Recipients[0].Principal != "" {
				t.Errorf("receipt of %s %d = %+v", kind, place, r)
			}
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("receipt of %s %d = %q, want %q as of the first", kind, place, got, want)
			}
		}
		if wantErr := kind != "role"; wantErr == (want == string(wire.StageGone)) {
			t.Errorf("receipt of a %s message by a stranger = %q", kind, want)
		}
	}
}
