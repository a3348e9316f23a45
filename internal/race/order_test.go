package race_test

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// version is a grant as the broker stored it. The broker takes the time while it holds the stream, so whoever reads later than that
// reads this version or a later one, and whoever read before it an earlier one: no tolerance is needed on one machine.
type version struct {
	seq   uint64
	at    time.Time
	grant trust.Grant
}

// What an op can be.
const (
	opGrant    = "grant"
	opRevoke   = "revoke"
	opExchange = "exchange"
	opConnect  = "connect" // a decision of an authority about a connection
	opKnock    = "knock"   // a client that connects; only the broker answers it
)

// secretUnknown is the hash of a secret that was set, and not handed out because something went wrong after that.
const secretUnknown = "unknown"

// op is one operation with its invocation, its response and what came of it.
type op struct {
	kind       string
	id         string // who it is for the records: By of the grants that it writes
	begin, end time.Time
	principal  wire.Principal
	err        error

	request auth.GrantRequest // of a grant
	hash    string            // of the secret: that a grant sets, or that an agent shows
	change  auth.GrantChange

	agent bool // it shows a secret
	// What a connection is asked under, and what an exchange or a decision gave.
	life  wire.Lifecycle
	epoch uint64
	scope []string
	given trust.Grant
	key   string // of the connection
}

func (o *op) during(t time.Time) bool { return !t.Before(o.begin) && !t.After(o.end) }

func (o *op) String() string {
	return fmt.Sprintf("%s %s of %s [%s, %s] = %v", o.id, o.kind, o.principal, o.begin.Format("05.000000"), o.end.Format("05.000000"), o.err)
}

// listing is the connections that the broker had at some moment between begin and end.
type listing struct {
	begin, end time.Time
	keys       []string
}

// run is everything that happened.
type run struct {
	versions map[wire.Principal][]version // in the order of the broker
	ops      []*op
	listings []listing
}

// check returns everything that no one order explains.
func (r *run) check() (wrong []string) {
	for p, all := range r.versions {
		wrong = append(wrong, r.checkChain(p, all)...)
	}
	wrong = append(wrong, r.checkAuthors()...)
	for _, o := range r.ops {
		wrong = append(wrong, r.checkOp(o)...)
	}
	wrong = append(wrong, r.checkListings()...)
	slices.Sort(wrong)
	return wrong
}

// checkChain wants each version to follow from the one before.
func (r *run) checkChain(p wire.Principal, all []version) (wrong []string) {
	bad := func(v version, format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("grant of %s at sequence %d: %s", p, v.seq, fmt.Sprintf(format, args...)))
	}
	var before trust.Grant
	for i, v := range all {
		g := v.grant
		switch {
		case i == 0:
			if g.Epoch != 1 || g.State != trust.GrantActive {
				bad(v, "the first one is %s of epoch %d", g.State, g.Epoch)
			}
		case v.seq <= all[i-1].seq || v.at.Before(all[i-1].at):
			bad(v, "stored before sequence %d", all[i-1].seq)
		case g.UID != before.UID:
			if before.State != trust.GrantRetired || g.State != trust.GrantActive || g.Epoch != before.Epoch+1 {
				bad(v, "a life began as %s of epoch %d after %s of epoch %d", g.State, g.Epoch, before.State, before.Epoch)
			}
		case g.Parent != before.Parent || g.ParentUID != before.ParentUID || g.Kind != before.Kind:
			bad(v, "the life changed what it is chosen once")
		case g.Epoch == before.Epoch: // a mark was taken off, or a retirement ended
			marks := g.State == trust.GrantActive && before.State == trust.GrantActive && g.Refusing == 0 && before.Refusing != 0
			ends := g.State == trust.GrantRetired && before.State == trust.GrantRetiring
			if !marks && !ends || !sameRights(g, before) {
				bad(v, "two states of epoch %d: %s after %s", g.Epoch, g.State, before.State)
			}
		case g.Epoch != before.Epoch+1:
			bad(v, "epoch %d follows %d", g.Epoch, before.Epoch)
		case before.State != trust.GrantActive || g.State == trust.GrantRetired:
			bad(v, "%s follows %s", g.State, before.State)
		case g.State == trust.GrantRetiring && !sameRights(g, before):
			bad(v, "a revocation changed rights")
		}
		before = g
	}
	return wrong
}

func sameRights(a, b trust.Grant) bool {
	return slices.Equal(a.Scope, b.Scope) && slices.Equal(a.AllowSubscribe, b.AllowSubscribe) && slices.Equal(a.AllowPublish, b.AllowPublish) && a.Role == b.Role
}

// checkAuthors wants exactly one author for every epoch: a grant that says of itself that it wrote it and nothing was lost of what was there,
// or a revocation of it or of somebody above it. And it wants an epoch for everybody who was told that they wrote one.
func (r *run) checkAuthors() (wrong []string) {
	byID := map[string]*op{}
	for _, o := range r.ops {
		if o.kind == opGrant {
			byID[o.id] = o
		}
	}
	wrote := map[string]version{}
	for p, all := range r.versions {
		var before trust.Grant
		for _, v := range all {
			g := v.grant
			switch {
			case g.Epoch == before.Epoch:
			case g.State == trust.GrantRetiring:
				if !r.revoker(p, v) {
					wrong = append(wrong, fmt.Sprintf("epoch %d of %s: nobody revoked it at %s", g.Epoch, p, v.at.Format("05.000000")))
				}
			default:
				o := byID[g.By]
				if o == nil || o.principal != p || !o.during(v.at) {
					wrong = append(wrong, fmt.Sprintf("epoch %d of %s: %q wrote it, which is not: %v", g.Epoch, p, g.By, o))
					break
				}
				if w, ok := wrote[g.By]; ok {
					wrong = append(wrong, fmt.Sprintf("%v wrote epochs %d and %d", o, w.grant.Epoch, g.Epoch))
				}
				wrote[g.By] = v
				if want := o.applied(before); !sameRights(want, g) || want.TokenHash != g.TokenHash && o.hash != secretUnknown {
					wrong = append(wrong, fmt.Sprintf("epoch %d of %s: a change was lost: %+v, want %+v", g.Epoch, p, g, want))
				}
			}
			before = g
		}
	}
	for _, o := range byID {
		w, ok := wrote[o.id]
		switch {
		case o.err == nil && o.change.Changed && !ok:
			wrong = append(wrong, fmt.Sprintf("%v: it was told that it wrote epoch %d, which is not there", o, o.change.Grant.Epoch))
		case o.err == nil && o.change.Changed && (o.change.Grant.Epoch != 0 && w.grant.Epoch != o.change.Grant.Epoch || w.grant.UID != o.change.Grant.UID):
			wrong = append(wrong, fmt.Sprintf("%v: it was told that it wrote epoch %d, and wrote %d", o, o.change.Grant.Epoch, w.grant.Epoch))
		}
	}
	return wrong
}

// applied is what a grant makes of the one before.
func (o *op) applied(before trust.Grant) trust.Grant {
	if before.State != trust.GrantActive {
		before = trust.Grant{}
	}
	for _, l := range []struct{ have, want *[]string }{
		{&before.Scope, &o.request.Scope}, {&before.AllowSubscribe, &o.request.Subscribe}, {&before.AllowPublish, &o.request.Publish},
	} {
		if *l.want != nil {
			*l.have = *l.want
		}
	}
	if o.hash != "" {
		before.TokenHash = o.hash
	}
	return before
}

// revoker reports whether somebody was revoking p, or who is above it, when v was stored. A grant whose parent was taken away
// while it was written takes itself back.
func (r *run) revoker(p wire.Principal, v version) bool {
	above := map[wire.Principal]bool{p: true}
	for g := v.grant; g.Parent != ""; {
		name, _ := wire.ParsePrincipal(g.Parent)
		if above[name] {
			break
		}
		above[name] = true
		i := slices.IndexFunc(r.versions[name], func(w version) bool { return w.grant.UID == g.ParentUID })
		if i < 0 {
			break
		}
		g = r.versions[name][i].grant
	}
	return slices.ContainsFunc(r.ops, func(o *op) bool {
		return o.during(v.at) && (o.kind == opRevoke && above[o.principal] || o.kind == opGrant && o.principal == p)
	})
}

// moment is a version that somebody who reads between two times may see, and the earliest time at which they see it.
type moment struct {
	grant trust.Grant // zero: there is none
	from  time.Time
}

// visible returns what a read between two times may see.
func (r *run) visible(p wire.Principal, from, to time.Time) (out []moment) {
	all := r.versions[p]
	if len(all) == 0 || from.Before(all[0].at) {
		out = append(out, moment{from: from})
	}
	for i, v := range all {
		if v.at.After(to) || i+1 < len(all) && !all[i+1].at.After(from) {
			continue
		}
		m := moment{grant: v.grant, from: from}
		if v.at.After(from) {
			m.from = v.at
		}
		out = append(out, m)
	}
	return out
}

// outcome is what an admission may come to. The life and epoch are those of one that was let in.
type outcome struct {
	reason trust.Reason
	uid    wire.UID
	epoch  uint64
}

// possible returns what the reads of an admission may lead to: the grant first, then every grant above it, each read not before
// the one below. What it asks is that every grant held when it was read. Had all of them to hold at one moment, an
// admission would have to read the chain twice; nothing needs that, because whoever takes away closes what was decided before.
func (r *run) possible(o *op) map[outcome]bool {
	out := map[outcome]bool{}
	for _, m := range r.visible(o.principal, o.begin, o.end) {
		g := m.grant
		switch {
		case o.kind == opConnect && g.Ver != 0 && (g.UID != o.life.UID || g.Epoch != o.epoch):
			if why := stands(g); why != "" && g.UID == o.life.UID {
				out[outcome{reason: why}] = true
				continue
			}
			out[outcome{reason: trust.ReasonSuperseded}] = true
		case o.agent && (g.Ver == 0 || g.TokenHash == "" || g.TokenHash != o.hash):
			out[outcome{reason: trust.ReasonActorToken}] = true
		case g.Ver == 0:
			out[outcome{reason: trust.ReasonNotGranted}] = true
		case stands(g) != "":
			out[outcome{reason: stands(g)}] = true
		default:
			r.climb(g, g, m.from, o.end, out)
		}
	}
	// A queue is made before somebody is let in, and the grant is looked at once more after that.
	for _, m := range r.visible(o.principal, o.begin, o.end) {
		if o.kind == opConnect && (m.grant.UID != o.life.UID || stands(m.grant) != "") {
			out[outcome{reason: trust.ReasonSuperseded}] = true
		}
	}
	return out
}

// climb reads what is above child, which is g or above it.
func (r *run) climb(g, child trust.Grant, from, to time.Time, out map[outcome]bool) {
	if child.Parent == "" {
		out[outcome{uid: g.UID, epoch: g.Epoch}] = true
		return
	}
	name, _ := wire.ParsePrincipal(child.Parent)
	for _, m := range r.visible(name, from, to) {
		switch parent := m.grant; {
		case parent.Ver == 0, parent.UID != child.ParentUID, stands(parent) != "":
			out[outcome{reason: trust.ReasonParent}] = true
		case !trust.Within(child, parent).Empty():
			out[outcome{reason: trust.ReasonExceedsParent}] = true
		default:
			r.climb(g, parent, m.from, to, out)
		}
	}
}

// stands is why a grant permits nothing, or empty.
func stands(g trust.Grant) trust.Reason {
	switch g.State {
	case trust.GrantActive:
		return ""
	case trust.GrantRetiring:
		return trust.ReasonRetiring
	}
	return trust.ReasonRevoked
}

// checkOp wants what one operation was told to be what it may have seen between its invocation and its response.
func (r *run) checkOp(o *op) (wrong []string) {
	bad := func(format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("%v: %s", o, fmt.Sprintf(format, args...)))
	}
	switch o.kind {
	case opExchange, opConnect:
		got := outcome{reason: trust.ReasonOf(o.err)}
		if o.err == nil {
			got = outcome{uid: o.given.UID, epoch: o.given.Epoch}
		} else if got.reason == "" {
			break // nothing was decided
		}
		if can := r.possible(o); !can[got] {
			bad("it came to %+v, which nothing explains; it could have been %v", got, can)
		}
		if o.err == nil && !r.rights(o) {
			bad("it was given rights that epoch %d does not hold: %+v", o.given.Epoch, o.given)
		}
	case opKnock:
		if o.err == nil && !slices.ContainsFunc(r.ops, func(d *op) bool {
			return d.kind == opConnect && d.err == nil && d.life == o.life && d.epoch == o.epoch && !d.begin.Before(o.begin) && !d.begin.After(o.end)
		}) {
			bad("somebody was let in, and no authority had decided that")
		}
	case opRevoke:
		wrong = append(wrong, r.checkRevoke(o)...)
	case opGrant:
		if o.err != nil && wire.CodeOf(o.err) == wire.CodeConflict && !slices.ContainsFunc(r.versions[o.principal], func(v version) bool {
			return o.during(v.at) && v.grant.By != o.id
		}) {
			bad("it was told of a change that is not there")
		}
	}
	return wrong
}

// rights reports whether what was given is what the epoch holds.
func (r *run) rights(o *op) bool {
	return slices.ContainsFunc(r.versions[o.principal], func(v version) bool {
		g := v.grant
		return g.UID == o.given.UID && g.Epoch == o.given.Epoch && slices.Equal(g.AllowSubscribe, o.given.AllowSubscribe) &&
			slices.Equal(g.AllowPublish, o.given.AllowPublish) && slices.Equal(g.Scope, o.given.Scope)
	})
}

func (r *run) checkRevoke(o *op) (wrong []string) {
	seen := r.visible(o.principal, o.begin, o.end)
	in := func(states ...trust.GrantState) bool {
		return slices.ContainsFunc(seen, func(m moment) bool { return slices.Contains(states, m.grant.State) })
	}
	switch {
	case o.err == nil && !in(trust.GrantRetired):
		wrong = append(wrong, fmt.Sprintf("%v: nothing is retired", o))
	case wire.CodeOf(o.err) == wire.CodeNotFound && !in("", trust.GrantRetired):
		wrong = append(wrong, fmt.Sprintf("%v: it was there all the time", o))
	}
	return wrong
}

// checkListings wants no connection to be alive that was decided under what had been taken away, by a call that had returned, before
// the connections were listed.
func (r *run) checkListings() (wrong []string) {
	decided := map[string]*op{}
	for _, o := range r.ops {
		if o.kind == opConnect && o.err == nil {
			decided[o.key] = o
		}
	}
	for _, l := range r.listings {
		for _, key := range l.keys {
			d := decided[key]
			if d == nil {
				wrong = append(wrong, fmt.Sprintf("connection %s is alive, and no authority had decided that", key))
				continue
			}
			if slices.ContainsFunc(r.versions[d.principal], func(v version) bool {
				return v.grant.UID == d.life.UID && v.grant.State == trust.GrantRetired && v.at.Before(l.begin)
			}) {
				wrong = append(wrong, fmt.Sprintf("connection of %s is alive at %s, and its life is retired", d.principal, l.end.Format("05.000000")))
			}
			for _, o := range r.ops {
				if why := o.ended(d, r); why != "" && o.end.Before(l.begin) {
					wrong = append(wrong, fmt.Sprintf("connection of %s, decided under epoch %d at %s, is alive at %s: %s by %v", d.principal, d.epoch,
						d.begin.Format("05.000000"), l.end.Format("05.000000"), why, o))
				}
			}
		}
	}
	return wrong
}

// ended says why a grant that has returned without an error leaves no connection like d, or nothing.
func (o *op) ended(d *op, r *run) string {
	if o.kind != opGrant || o.err != nil {
		return ""
	}
	g := o.change.Grant
	switch {
	case !o.change.Narrowed:
	case g.UID == d.life.UID:
		if d.epoch < r.refusing(o.principal, g) {
			return "narrowed"
		}
	case slices.Contains(o.change.Exceeding, d.principal):
		i := slices.IndexFunc(r.versions[o.principal], func(v version) bool { return v.grant.UID == g.UID && v.grant.Epoch == g.Epoch })
		if i >= 0 && d.end.Before(r.versions[o.principal][i].at) {
			return "it held more than the narrowed grant"
		}
	}
	return ""
}

// refusing is the epoch before which a grant refused what had been decided: its own if it took something away itself, or that of an
// earlier one whose mark it carried on and finished.
func (r *run) refusing(p wire.Principal, g trust.Grant) (epoch uint64) {
	for _, v := range r.versions[p] {
		if v.grant.UID == g.UID && v.grant.Epoch == g.Epoch {
			epoch = max(epoch, v.grant.Refusing)
		}
	}
	return epoch
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// sorted brings versions into the order of the broker.
func sorted(all []version) []version {
	slices.SortFunc(all, func(a, b version) int { return cmp.Compare(a.seq, b.seq) })
	return all
}
