package space

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

// maxRoles bounds how many sender and role pairs Work reads.
const maxRoles = 100_000

// Work counts the messages that wait for each role, whether or not anybody holds it.
//
// Errors: resource-exhausted when there are too many senders and roles to count.
func Work(ctx context.Context, js jetstream.JetStream, s wire.Space) (map[string]uint64, error) {
	stream := wire.RoleStream(s)
	subjects, err := Subjects(ctx, js, stream, wire.StreamSubjects(s, wire.KindRole), maxRoles)
	if err != nil {
		return nil, err
	}
	out := map[string]uint64{}
	for subject, n := range subjects {
		sub, err := wire.ParseSubject(subject)
		if err != nil || sub.Kind != wire.KindRole {
			continue
		}
		out[sub.Role] += n
	}
	return out, nil
}

// ClearWork removes what waits for a role and returns how many messages that were. It cannot be undone.
func ClearWork(ctx context.Context, js jetstream.JetStream, s wire.Space, role string) (uint64, error) {
	filter, err := wire.RoleFilter(s, role)
	if err != nil {
		return 0, err
	}
	what := fmt.Sprintf("clear work of role %q in space %q", role, s)
	before, err := Work(ctx, js, s)
	if err != nil {
		return 0, err
	}
	st, err := received(ctx, func() (jetstream.Stream, error) { return js.Stream(ctx, wire.RoleStream(s)) })
	if err != nil {
		return 0, translate(what, err)
	}
	if err := st.Purge(ctx, jetstream.WithPurgeSubject(filter)); err != nil {
		return 0, translate(what, err)
	}
	return before[role], nil
}
