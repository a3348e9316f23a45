package mint

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	// pruneGrace is how long a revocation outlives the last credential it names, for clocks that differ.
	pruneGrace = 5 * time.Minute
	// maxAhead bounds how far ahead of the clock a revocation may reach, for credentials from a host that runs fast.
	maxAhead = time.Hour
)

// AgentRevocations is how many revocations an account may hold while agents are granted and started with credential files: three
// quarters of what it can hold at all. Each agent that ends, and each start that another follows, leaves one until its credential would
// have run out, so that whoever may start agents could use up what revoking anybody needs.
const AgentRevocations = trust.MaxRevocations / 4 * 3

// Revocation asks the account to refuse credentials.
type Revocation struct {
	// UserKey is the public key of the credential, or trust.AllUsers for every credential of the space.
	UserKey string
	// At is the last second of issue that is refused; zero means now. Up to an hour ahead is taken.
	At time.Time
	// Expires is when the last credential that is meant has expired; zero means the longest life there is, counted
	// from At. The entry is dropped after it.
	Expires time.Time
}

// Revoke adds revocations to the account of s and returns its record, to be pushed: only then do brokers drop the
// connections and refuse the credentials, from then on also after restarts. Entries whose credentials have all
// expired are dropped on the way. Concurrent calls, from any process, all take effect. Revoking again changes nothing.
//
// Errors: bad-request for something that is not a user key or a time too far ahead; resource-exhausted, with
// "used" and "allowed", when the account would hold more than trust.MaxRevocations: the error says when there is room again;
// not-found for an unknown space. Nothing is revoked when an error is returned.
func (a *Authority) Revoke(ctx context.Context, s wire.Space, revs ...Revocation) (trust.AccountRecord, error) {
	entries, err := resolve(revs, time.Now())
	if err != nil {
		return trust.AccountRecord{}, fmt.Errorf("revoke in space %q: %w", s, err)
	}
	rec, err := a.updateAccount(ctx, s, func(_ context.Context, rec *trust.AccountRecord) error {
		have := prune(rec.Revocations, time.Now())
		rec.Revocations = merge(have, entries)
		n := len(rec.Revocations)
		if n <= trust.MaxRevocations {
			return nil
		}
		return exhausted(n, trust.MaxRevocations, "%d revocations, limit %d; %s, as the credentials run out that were revoked before",
			n, trust.MaxRevocations, roomAgain(have, n-trust.MaxRevocations))
	})
	if err != nil {
		return trust.AccountRecord{}, fmt.Errorf("revoke in space %q: %w", s, err)
	}
	return rec, nil
}

// AgentRoom refuses when the account of s holds so many revocations that no agent is to be granted or started with a credential
// file, which will have to be revoked. It changes nothing, and costs one read of the record.
//
// Errors: resource-exhausted, with "used" and "allowed", for more than [AgentRevocations]: the error says when there is room again;
// not-found for an unknown space.
func (a *Authority) AgentRoom(ctx context.Context, s wire.Space) error {
	rec, err := a.recentAccount(ctx, s)
	if err != nil {
		return fmt.Errorf("look for room for revocations in space %q: %w", s, err)
	}
	if len(rec.Revocations) <= AgentRevocations {
		return nil
	}
	have := prune(rec.Revocations, time.Now())
	n := len(have)
	if n <= AgentRevocations {
		return nil
	}
	return exhausted(n, AgentRevocations, "space %q holds %d revocations, and agents are granted and started only up to %d, so that "+
		"everybody can be revoked; each agent that ended, and each start that another followed, left one for as long as its credential "+
		"would have lived; %s", s, n, AgentRevocations, roomAgain(have, n-AgentRevocations))
}

func exhausted(used, allowed int, format string, args ...any) error {
	e := wire.Errorf(wire.CodeResourceExhausted, format, args...)
	e.Details = map[string]any{"resource": "revocations", "used": used, "allowed": allowed}
	return e
}

// roomAgain says when so many of some revocations are dropped; of fewer when the last one is.
func roomAgain(revs []trust.Revocation, over int) string {
	if len(revs) == 0 {
		return "revoke fewer at once"
	}
	ends := make([]time.Time, len(revs))
	for i, r := range revs {
		ends[i] = r.Until
	}
	slices.SortFunc(ends, time.Time.Compare)
	at := ends[min(over, len(ends))-1].Add(pruneGrace + time.Second)
	return "there is room again at " + at.UTC().Format(time.RFC3339)
}

// resolve checks the requests and fills in their defaults. Credentials that have expired need no entry.
func resolve(revs []Revocation, now time.Time) ([]trust.Revocation, error) {
	var out []trust.Revocation
	for _, r := range revs {
		if !validUserKey(r.UserKey) {
			return nil, wire.Errorf(wire.CodeBadRequest, "%.64q is not the public key of a user", r.UserKey)
		}
		if r.At.IsZero() {
			r.At = now
		}
		if r.At.After(now.Add(maxAhead)) {
			return nil, wire.Errorf(wire.CodeBadRequest, "time %s is more than %s ahead", r.At.UTC().Format(time.RFC3339), maxAhead)
		}
		until := r.Expires
		if longest := r.At.Add(trust.MaxLifetime); until.IsZero() || until.After(longest) {
			until = longest
		}
		e := trust.Revocation{UserKey: r.UserKey, At: r.At.UTC().Truncate(time.Second), Until: until.UTC().Truncate(time.Second).Add(time.Second)}
		if !expired(e, now) {
			out = append(out, e)
		}
	}
	return out, nil
}

// merge adds entries, keeping the later times where a key is there already, and drops what a revocation of all users
// covers. The result is sorted by key, so that equal sets are equal records.
func merge(have, add []trust.Revocation) []trust.Revocation {
	index := make(map[string]trust.Revocation, len(have)+len(add))
	for _, r := range slices.Concat(have, add) {
		if old, ok := index[r.UserKey]; ok {
			r.At, r.Until = later(old.At, r.At), later(old.Until, r.Until)
		}
		index[r.UserKey] = r
	}
	all, revokedAll := index[trust.AllUsers]
	out := make([]trust.Revocation, 0, len(index))
	for _, r := range index {
		covered := revokedAll && r.UserKey != trust.AllUsers && !r.At.After(all.At) && !r.Until.After(all.Until)
		if !covered {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(x, y trust.Revocation) int { return strings.Compare(x.UserKey, y.UserKey) })
	return out
}

// prune drops the entries whose credentials have all expired.
func prune(revs []trust.Revocation, now time.Time) []trust.Revocation {
	return slices.DeleteFunc(slices.Clone(revs), func(r trust.Revocation) bool { return expired(r, now) })
}

func expired(r trust.Revocation, now time.Time) bool { return now.After(r.Until.Add(pruneGrace)) }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
