package space_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// TestQuestionsOutliveAnAccountThatIsReplaced asks while nobody receives questions to the API, and is answered when somebody does again.
func TestQuestionsOutliveAnAccountThatIsReplaced(t *testing.T) {
	ada := grantOf(lifecycle("ada"))
	for name, ask := range map[string]func(*testing.T, jetstream.JetStream) error{
		"read_a_grant": func(t *testing.T, js jetstream.JetStream) error {
			_, _, err := space.NewGrants(js, lab).Get(t.Context(), ada.Principal())
			return err
		},
		"make_a_queue": func(t *testing.T, js jetstream.JetStream) error {
			return space.EnsureDurables(t.Context(), js, lab, lifecycle("bob"), "")
		},
		"remove_a_queue": func(t *testing.T, js jetstream.JetStream) error {
			return space.RemoveDurables(t.Context(), js, lab, lifecycle("ada"))
		},
		"look_at_a_queue": func(t *testing.T, js jetstream.JetStream) error {
			_, err := space.InspectQueue(t.Context(), js, wire.DirectStream(lab), "nobody")
			if errors.Is(err, wire.ErrNotFound) {
				return nil
			}
			return err
		},
		"log_a_credential": func(t *testing.T, js jetstream.JetStream) error {
			return space.NewGrants(js, lab).MintRoom(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			faketime.Test(t, func(t *testing.T) {
				srv := broker(t)
				js := connect(t, srv)
				if err := space.Ensure(t.Context(), js, lab, nil); err != nil {
					t.Fatal(err)
				}
				must(space.NewGrants(js, lab).Create(t.Context(), ada))(t)
				const prefix = "AWAY"
				away := must(jetstream.NewWithAPIPrefix(js.Conn(), prefix))(t)
				got := make(chan error, 1)
				go func() { got <- ask(t, away) }()
				synctest.Wait() // it was asked once, and nobody was there
				must(js.Conn().Subscribe(prefix+".>", func(m *nats.Msg) {
					answer, err := js.Conn().RequestWithContext(t.Context(), "$JS.API."+strings.TrimPrefix(m.Subject, prefix+"."), m.Data)
					if err == nil {
						err = m.Respond(answer.Data)
					}
					if err != nil {
						t.Errorf("pass on: %v", err)
					}
				}))(t)
				if err := <-got; err != nil {
					t.Errorf("%v, want an answer", err)
				}
			})
		})
	}
}
