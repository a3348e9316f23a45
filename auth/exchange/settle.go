package exchange

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/cotal-go/cotal/internal/logkey"
)

// settle counts a refusal, tells the audit hook and the log, and hides the reason from a peer that was refused too often. A
// bearer that was granted is never touched: bad requests of others from the same address keep nobody out.
func (f *face) settle(ctx context.Context, c *call, a answer) answer {
	d := a.decision
	d.RequestID, d.Face, d.Peer, d.Status = c.id, f.name, c.peer, a.status
	if c.exchange && !c.wrongCap && refused(a) {
		if wait := f.server.limits.refuse(f.name, c.peer); wait > 0 {
			hidden := refuse(tooMany("refusals", f.server.opts.Limits.Refusals, wait), c.form)
			hidden.err, hidden.hangUp = a.err, a.hangUp
			a = hidden
			d.Throttled, d.Status = true, a.status
		}
	}
	if hook := f.server.opts.OnDecision; hook != nil && (c.exchange || c.wrongCap) {
		settled := a
		if a = protect(c.form, func() answer { hook(ctx, d); return settled }); a.status != settled.status { // it panicked
			d.Code, d.Reason, d.Status = a.decision.Code, a.decision.Reason, a.status
		}
	}
	f.log(ctx, c, a, d)
	return a
}

// refused reports whether an answer counts against the peer: the service's own trouble does not, and neither does a limit.
func refused(a answer) bool {
	return a.slow || a.status >= 400 && a.status < 500 && a.status != http.StatusTooManyRequests
}

// log says what happened. A stranger cannot fill the log: refusals beyond the limits and what is not an exchange are at
// Debug, and trouble of the service is said a few times a minute.
func (f *face) log(ctx context.Context, c *call, a answer, d Decision) {
	attrs := []slog.Attr{
		slog.String(logkey.RequestID, c.id), slog.String(logkey.Face, string(f.name)), slog.String(logkey.Peer, c.peer),
		slog.Int(logkey.Status, d.Status),
	}
	if !d.Lifecycle.Principal.IsZero() {
		attrs = append(attrs, slog.String(logkey.Principal, d.Lifecycle.Principal.String()))
	}
	if a.err == nil {
		f.server.log.LogAttrs(ctx, slog.LevelDebug, "request answered", attrs...)
		return
	}
	attrs = append(attrs, slog.String(logkey.Code, string(d.Code)), slog.String(logkey.Reason, string(d.Reason)))
	level, message := slog.LevelDebug, "request refused"
	switch {
	case a.status >= 500 && a.status != http.StatusServiceUnavailable:
		level, message = slog.LevelError, "request failed"
		attrs = append(attrs, slog.Any(logkey.Error, a.err))
		if p, ok := errors.AsType[*panicked](a.err); ok {
			attrs = append(attrs, slog.String(logkey.Stack, p.stack))
		}
	case (c.exchange || c.wrongCap) && refused(a):
		level = slog.LevelInfo
	case a.status == http.StatusServiceUnavailable && f.server.limits.loud():
		level, message = slog.LevelWarn, "request not answered"
		attrs = append(attrs, slog.Any(logkey.Error, a.err))
	}
	f.server.log.LogAttrs(ctx, level, message, attrs...)
}
