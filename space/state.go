package space

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// State returns the state of a stream.
//
// Errors: failed-precondition when the stream is not there; unavailable; deadline-exceeded.
func State(ctx context.Context, js jetstream.JetStream, stream string) (jetstream.StreamState, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	st, err := received(ctx, func() (jetstream.Stream, error) { return js.Stream(ctx, stream) })
	if err != nil {
		return jetstream.StreamState{}, translate(fmt.Sprintf("inspect stream %q", stream), err)
	}
	return st.CachedInfo().State, nil
}

// Subjects returns the number of messages of each subject of a stream that matches filter. When the stream has more
// than most subjects it asks for none and returns nil: whoever may publish on a wildcard decides how many there are,
// and how long. Errors are those of [State].
func Subjects(ctx context.Context, js jetstream.JetStream, stream, filter string, most uint64) (map[string]uint64, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	what := fmt.Sprintf("inspect stream %q", stream)
	st, err := received(ctx, func() (jetstream.Stream, error) { return js.Stream(ctx, stream) })
	if err != nil {
		return nil, translate(what, err)
	}
	if st.CachedInfo().State.NumSubjects > most {
		return nil, nil
	}
	info, err := received(ctx, func() (*jetstream.StreamInfo, error) { return st.Info(ctx, jetstream.WithSubjectFilter(filter)) })
	if err != nil {
		return nil, translate(what, err)
	}
	return info.State.Subjects, nil
}
