package mcpserver

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// How long what was asked of others is used again, and how many lives of a chain are shown.
const (
	peopleAge = 5 * time.Second
	maxChain  = 8
)

// askWithin is how long an answer may take before messages are shown without it, a constant but for tests.
var askWithin = 1500 * time.Millisecond

// directory remembers who is there and who started whom. The zero value knows nobody.
type directory struct {
	mu       sync.Mutex // held over the questions, so that one asks for all
	entries  []wire.RosterEntry
	asked    time.Time
	parents  map[string]string
	lineages time.Time
}

// people returns what is known of principals; of nobody when nobody answers in time.
func (s *Server) people(ctx context.Context) func(wire.Principal) who {
	d := &s.known
	d.mu.Lock()
	defer d.mu.Unlock()
	s.refreshLocked(ctx)
	entries, parents := d.entries, d.parents
	own := s.ep.Principal()
	return func(p wire.Principal) who {
		w := who{self: p == own, chain: chain(parents, p.String())}
		for i := range entries {
			if entries[i].Principal == p.String() {
				card := &entries[i].Presence.Card
				w.kind, w.name, w.role = card.Kind, card.Name, card.Role
			}
		}
		return w
	}
}

func (s *Server) refreshLocked(ctx context.Context) {
	d := &s.known
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	if time.Since(d.asked) > peopleAge {
		if r, err := s.ep.Roster(ctx); err == nil {
			d.entries = r.Entries
		}
		d.asked = time.Now()
	}
	if s.manager == nil || time.Since(d.lineages) <= peopleAge {
		return
	}
	d.lineages = time.Now()
	census, err := s.manager.Census(ctx, wire.AgentsRequest{Ended: true})
	if err != nil {
		return
	}
	d.parents = map[string]string{}
	for _, r := range census.Replies {
		for _, a := range r.Agents {
			if a.Parent != "" {
				d.parents[a.Principal] = a.Parent
			}
		}
	}
}

// chain are those that started a principal, the nearest first.
func chain(parents map[string]string, p string) (out []string) {
	for len(out) < maxChain {
		up := parents[p]
		if up == "" || slices.Contains(out, up) {
			break
		}
		out, p = append(out, up), up
	}
	return out
}

// resolve says whom a name means: a principal in dot form; else the one actor of that name in the roster, of those that are there
// when there are several. What a peer calls itself never decides it.
//
// Errors: bad-request for what is no name; conflict, naming the candidates, when several fit or only display names do; not-found when
// nobody does and the space knows of nobody; unavailable when the roster cannot be read.
func (s *Server) resolve(ctx context.Context, to string) (wire.Principal, error) {
	if strings.Contains(to, ".") {
		return wire.ParsePrincipal(to)
	}
	own := wire.Principal{Owner: s.ep.Principal().Owner, Actor: to}
	if err := own.Validate(); err != nil {
		return wire.Principal{}, err
	}
	r, err := s.ep.Roster(ctx)
	if err != nil {
		return wire.Principal{}, err
	}
	fits, claims := candidates(r.Entries, to)
	switch {
	case len(fits) == 1:
		return fits[0], nil
	case len(fits) > 1:
		return wire.Principal{}, wire.Errorf(wire.CodeConflict, "%q means several: %s; name one of them in full; nothing was sent", to, list(fits))
	}
	reach, err := s.ep.Reach(ctx, wire.ReachRequest{To: own.String()})
	switch {
	case err != nil:
		return wire.Principal{}, err
	case reach.Tier != wire.ReachNobody:
		return own, nil
	case len(claims) > 0:
		return wire.Principal{}, wire.Errorf(wire.CodeConflict, "nobody bears the name %q; %s only say so of themselves, which proves nothing: if you mean one of them, name it in full; nothing was sent", to, list(claims))
	}
	return wire.Principal{}, wire.Errorf(wire.CodeNotFound, "nobody in the space is called %q; cotal_roster lists who is there; nothing was sent", to)
}

// candidates are those whom a name means, and those who only call themselves so.
func candidates(entries []wire.RosterEntry, to string) (fits, claims []wire.Principal) {
	var exact, near, here []wire.Principal
	for i := range entries {
		e := &entries[i]
		p, err := wire.ParsePrincipal(e.Principal)
		switch {
		case err != nil:
		case p.Actor == to:
			exact = append(exact, p)
			if e.Presence.Status != wire.StatusOffline {
				here = append(here, p)
			}
		case strings.EqualFold(p.Actor, to):
			near = append(near, p)
		case strings.EqualFold(e.Presence.Card.Name, to):
			claims = append(claims, p)
		}
	}
	switch {
	case len(here) > 0:
		return here, claims
	case len(exact) > 0:
		return exact, claims
	}
	return near, claims
}

func list(ps []wire.Principal) string {
	out := make([]string, len(ps))
	for i, p := range ps {
		out[i] = p.String()
	}
	return strings.Join(out, ", ")
}
