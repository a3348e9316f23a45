package endpoint

import "context"

// Waiting counts the direct messages to this principal that are not handled: waiting ones that were handed to nobody yet,
// and held ones that a client of this principal has, this one or another. Errors are those of HandleDirect.
func (e *Endpoint) Waiting(ctx context.Context) (waiting, held uint64, err error) {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	t, err := e.directQueue().inspect(ctx)
	return t.waiting, uint64(t.pending), err
}
