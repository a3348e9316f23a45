package delivery

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

// Limits that tests look at.
const (
	Spacing       = spacing
	KeepGone      = keepGone
	AliveInterval = aliveInterval
	MaxMembers    = maxMembers
	MaxAudience   = maxAudience
)

// LastStart exposes the search for the start of the last messages.
func LastStart(ctx context.Context, js jetstream.JetStream, stream, filter string, n int) (uint64, error) {
	return lastStart(ctx, js, stream, filter, n)
}

// Search runs the search of LastStart over any probe.
func Search(want, first, total, last uint64, probe func(uint64) (uint64, uint64, error)) (uint64, error) {
	return search{want: want, probe: probe}.run(first, total, last)
}

// Roster is the state behind the roster command, without input and output.
type Roster struct{ r *roster }

// NewRoster returns an empty one.
func NewRoster() *Roster { return &Roster{newRoster()} }

// Heard, Stored, Left, Silent, Suspects, Due, Forget and Page are those of the roster.
func (r *Roster) Heard(p wire.Principal, rec *wire.Presence, at time.Time)  { r.r.heard(p, rec, at) }
func (r *Roster) Stored(p wire.Principal, rec *wire.Presence, at time.Time) { r.r.stored(p, rec, at) }
func (r *Roster) Left(p wire.Principal, at time.Time)                       { r.r.left(p, at) }
func (r *Roster) Silent(p wire.Principal, at time.Time)                     { r.r.silent(p, at) }
func (r *Roster) Suspects(deadline time.Time) []wire.Principal              { return r.r.suspects(deadline) }
func (r *Roster) Due(now time.Time) ([]wire.RosterEvent, time.Time)         { return r.r.due(now) }
func (r *Roster) Forget(now time.Time) []wire.RosterEvent                   { return r.r.forget(now) }
func (r *Roster) Page(after string, limit int) *wire.RosterReply            { return r.r.page(after, limit) }

// PageOf asks a service for its roster without the broker.
func PageOf(d *Service) (*wire.RosterReply, error) {
	return d.feed.page(context.Background(), wire.RosterRequest{})
}

// FreshOf is the health check of its view.
func FreshOf(d *Service) error { return d.feed.fresh() }

// ReachOf asks a service for a reach without the rails.
func ReachOf(ctx context.Context, d *Service, caller wire.Lifecycle, in wire.ReachRequest) (*wire.ReachReply, error) {
	return d.reach(ctx, caller, in)
}
