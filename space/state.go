package space

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// State returns the state of a stream, with the number of messages of each subject that matches filter when that is
// not empty. The counts are held in memory, one entry for each subject.
//
// Errors: failed-precondition when the stream is not there; unavailable; deadline-exceeded.
func State(ctx context.Context, js jetstream.JetStream, stream, filter string) (jetstream.StreamState, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	what := fmt.Sprintf("inspect stream %q", stream)
	st, err := js.Stream(ctx, stream)
	if err != nil {
		return jetstream.StreamState{}, translate(what, err)
	}
	if filter == "" {
		return st.CachedInfo().State, nil
	}
	info, err := st.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return jetstream.StreamState{}, translate(what, err)
	}
	return info.State, nil
}
