package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// access is what a caller may read and write now. The zero value is nothing.
type access struct {
	read, write []string
	// why says what is wrong with the grant when there is no access at all.
	why string
	// since is when the caller's life began, at the latest; zero in an open space.
	since time.Time
}

// everything is the access of everybody in an open space.
var everything = access{read: []string{">"}, write: []string{">"}}

func (a access) reads(channel string) bool  { return matches(a.read, channel) }
func (a access) writes(channel string) bool { return matches(a.write, channel) }

func matches(patterns []string, channel string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return wire.PatternMatches(p, channel) })
}

// accessOf reads the caller's grant from the leader. A grant that is missing, ended, expired or of another life is
// no error: it allows nothing.
func (d *Service) accessOf(ctx context.Context, caller wire.Lifecycle) (access, error) {
	if d.open {
		return everything, nil
	}
	grant, _, err := d.grants.Get(ctx, caller.Principal)
	if errors.Is(err, wire.ErrNotFound) {
		return access{why: "it has no grant"}, nil
	}
	if err != nil {
		return access{}, d.refuse(ctx, "read grant", caller, err)
	}
	return decide(grant, caller, time.Now()), nil
}

func decide(grant trust.Grant, caller wire.Lifecycle, now time.Time) access {
	switch {
	case grant.UID != caller.UID:
		return access{why: "its grant is of another life of the name"}
	case grant.State != trust.GrantActive:
		return access{why: fmt.Sprintf("its grant is %s", grant.State)}
	case !grant.Allows(now):
		return access{why: "its grant has expired"}
	}
	return access{read: grant.AllowSubscribe, write: grant.AllowPublish, since: grant.CreatedAt}
}

// denied is the refusal to read a channel. It tells the caller about its own grant only.
func (d *Service) denied(caller wire.Lifecycle, channel string, a access) error {
	why := a.why
	if why == "" {
		why = "its read list does not cover the channel"
	}
	subject, err := wire.ChannelFilter(d.space, channel)
	if err != nil {
		return err
	}
	e := wire.Errorf(wire.CodePermissionDenied, "read channel %q as %q: %s; ask an operator to add %q to its read list", channel, caller.Principal, why, channel)
	e.Outcome = wire.OutcomeNotExecuted
	e.Details = map[string]any{
		"subject": subject, "principal": caller.Principal.String(), "missing": "subscribe " + channel,
		"ask": fmt.Sprintf("ask an operator of space %q to add channel %q to the read list of %q", d.space, channel, caller.Principal),
	}
	return e
}
