package attack_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

// TestForgedPlaceHidesNoMention shows that an agent which has the broker deliver a message of its own queue where live copies
// are heard, with a place in the stream of its choice, does not make delivery skip what others post up to there.
func TestForgedPlaceHidesNoMention(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		s := m.Space()
		boss, victim := m.Endpoint(t, "boss", nil), m.Endpoint(t, "victim", nil)
		in := intrude(t, m, m.Credentials(t, "mallory", nil))
		own := must[string](t)(wire.DirectSubject(s, in.id.Principal, in.id.Principal))
		bait := &nats.Msg{Subject: own, Data: []byte("{}"), Header: nats.Header{"Nats-Sequence": {"20"}}}
		if _, err := in.nc.RequestMsg(bait, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		live := must[string](t)(wire.LiveSubject(s, boss.Principal(), "elsewhere"))
		publish(t, in.nc, "$JS.API.CONSUMER.MSG.NEXT."+wire.DirectStream(s)+"."+wire.DirectDurable(in.id.Lifecycle), live, `{"batch":1,"expires":1000000000}`)
		in.barrier(t)
		time.Sleep(6 * time.Second) // longer than delivery waits for what it believes to be there
		const posts = 25
		for i := range posts {
			if _, err := boss.Post(t.Context(), "elsewhere", endpoint.Draft{Parts: []wire.Part{wire.Text(fmt.Sprint(i))}, Mentions: []string{"victim"}}); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "mention of each post", func() bool {
			var got wire.PullReply
			if err := deliver(t.Context(), victim, wire.CommandPull, wire.PullRequest{Mentions: true}, &got); err != nil {
				t.Fatal(err)
			}
			return len(got.Messages) == posts
		})
	})
}
