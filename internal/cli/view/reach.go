package view

import (
	"strconv"
	"time"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/wire"
)

// ToPeer says in a phrase what becomes of a direct message to a peer.
func ToPeer(p target.Peer, r wire.ReachReply) string {
	switch r.Tier {
	case wire.ReachLive:
		return p.Principal + " is there" + asOf(r)
	case wire.ReachStored:
		if p.Status == string(wire.StatusOffline) && !p.Since().IsZero() {
			return p.Principal + " is offline since " + stamp(p.Since(), time.Now()) + " and gets it when it comes back"
		}
		return p.Principal + " is away and gets it when it comes back"
	}
	return unknown(r)
}

// ToRole says in a phrase what becomes of a message to a role.
func ToRole(role string, r wire.ReachReply) string {
	switch {
	case r.Tier == wire.ReachLive && r.Live == 1:
		return "its holder is there and takes it" + asOf(r)
	case r.Tier == wire.ReachLive:
		return "one of " + strconv.Itoa(r.Live) + " holders that are there takes it" + asOf(r)
	case r.Tier == wire.ReachStored:
		return "no holder of the role is there; it waits for one"
	case r.Tier == wire.ReachNobody:
		return "nobody is granted role " + role + " yet; it waits"
	}
	return unknown(r)
}

// ToChannel says in a phrase what becomes of a message to a channel.
func ToChannel(r wire.ReachReply) string {
	if r.Tier == target.ReachUnknown {
		return unknown(r)
	}
	text := "nobody listens at the moment"
	if r.Live > 0 {
		text = Plural(uint64(r.Live), "member") + " " + are(r.Live) + " there"
	}
	switch {
	case r.Stored == 1:
		text += ", 1 is away and gets it later"
	case r.Stored > 1:
		text += ", " + strconv.Itoa(r.Stored) + " are away and get it later"
	}
	return text + asOf(r)
}

func are(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func unknown(r wire.ReachReply) string {
	return command.Safe(r.Reason) + ", so who reads it is unknown"
}

// asOf dates an answer that delivery gave without sight of the space.
func asOf(r wire.ReachReply) string {
	if r.StaleSince == 0 {
		return ""
	}
	return " (as of " + stamp(time.UnixMilli(r.StaleSince), time.Now()) + ")"
}

// Plural counts things: "1 message", "2 messages".
func Plural(n uint64, noun string) string {
	s := strconv.FormatUint(n, 10) + " " + noun
	if n != 1 {
		s += "s"
	}
	return s
}

// When is a time as a person reads it: with its date unless it is today's.
func When(at time.Time) string { return stamp(at, time.Now()) }

// Channel writes a channel or pattern as people do.
func Channel(pattern string) string { return "#" + command.Safe(pattern) }
