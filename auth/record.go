package auth

import (
	"context"
	"fmt"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// change is what the authority did, for the audit stream.
type change struct {
	action string
	target wire.Lifecycle // zero for nobody
	by     string         // default: that of the authority
	detail string
	err    error // what kept it from being done
}

// event makes the record of a change.
func (a *Authority) event(c change) space.AuditEvent {
	e := space.AuditEvent{
		Ver: space.AuditVersion, ID: wire.NewID(), At: time.Now().UTC(), By: a.by(c.by), Action: c.action,
		Outcome: space.OutcomeOK, Detail: c.detail,
	}
	if p := c.target.Principal; p.Validate() == nil { // who asks for no actor in particular is only an owner yet
		e.Target, e.UID = p.String(), c.target.UID
	}
	if c.err != nil {
		e.Outcome, e.Reason, e.Detail = space.OutcomeFailed, trust.ReasonOf(c.err), c.err.Error()
		if e.Reason != "" {
			e.Outcome = space.OutcomeDenied
		}
	}
	return e
}

// audit appends a record. What was done is done, so a record that cannot be written is told in the log and is no error.
func (a *Authority) audit(ctx context.Context, s wire.Space, c change) {
	ctx = context.WithoutCancel(ctx)
	e := a.event(c)
	ses, err := a.session(ctx, s)
	if err == nil {
		err = space.NewAudit(ses.js, s).Append(ctx, e)
	}
	if err != nil {
		a.log.ErrorContext(ctx, "audit record not written", logkey.Space, s, logkey.Action, e.Action, logkey.Principal, e.Target,
			logkey.Outcome, e.Outcome, logkey.Reason, e.Detail, logkey.Error, err)
	}
}

// Audit returns what was done in a space, oldest first, and where to go on.
//
// Errors: those of [space.Audit.Read].
func (a *Authority) Audit(ctx context.Context, s wire.Space, q space.AuditQuery) ([]space.AuditEntry, uint64, error) {
	ses, err := a.session(ctx, s)
	if err != nil {
		return nil, 0, fmt.Errorf("read audit of space %q: %w", s, err)
	}
	return space.NewAudit(ses.js, s).Read(ctx, q)
}

// Entry is one decision at a door of the space, the exchange or the callout.
type Entry struct {
	// Action is space.ActionExchange, ActionView or ActionConnect.
	Action string
	// Life is who was let in or not; zero while nobody was proved.
	Life wire.Lifecycle
	// From is where they came from: an address.
	From string
	// Denied is why they were not let in; nil when they were.
	Denied error
	View   trust.View
}

// NoteEntry puts a decision into the audit stream: every view and every denial. Who was let in as usual is not there: a
// connection is in the issuance log. Denials that come in numbers are folded, so that a storm does not wash out what
// matters: whoever may choose the name that is denied is a stranger, and about nobody. It never waits for the broker.
func (a *Authority) NoteEntry(ctx context.Context, s wire.Space, e Entry) {
	c := change{action: e.Action, target: e.Life, by: e.From, err: e.Denied}
	switch {
	case e.Denied != nil:
		if e.Life.UID == "" && !ofGrant(trust.ReasonOf(e.Denied)) {
			c.target = wire.Lifecycle{} // the sentence of the first in a minute has the name
		}
		a.denials(s).Note(a.event(c))
	case e.View != trust.ViewNone:
		c.action, c.detail = space.ActionView, fmt.Sprintf("view %s was given", e.View)
		a.denials(s).Note(a.event(c))
	}
}

// ofGrant reports whether a reason is that of a grant which was found. With any other the name is the one that was asked for, which
// may be another each time.
func ofGrant(r trust.Reason) bool {
	switch r {
	case trust.ReasonRevoked, trust.ReasonRetiring, trust.ReasonGrantExpired, trust.ReasonSuperseded, trust.ReasonParent,
		trust.ReasonExceedsParent, trust.ReasonScope:
		return true
	}
	return false
}

// denials returns what folds the denials of a space.
func (a *Authority) denials(s wire.Space) *Denials {
	a.mu.Lock()
	defer a.mu.Unlock()
	d, ok := a.folds[s]
	if !ok {
		d = NewDenials(func(ctx context.Context, e space.AuditEvent) error {
			ses, err := a.session(ctx, s)
			if err != nil {
				return err
			}
			return space.NewAudit(ses.js, s).Append(ctx, e)
		}, a.log)
		a.folds[s] = d
	}
	return d
}
