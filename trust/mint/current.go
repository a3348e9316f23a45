package mint

import (
	"context"
	"fmt"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Current reports whether the accounts of a space are signed as this build would sign them: by the current operator key, with
// the templates of this build, and with a key for every profile. [Authority.AddSpace] with nil limits brings one that is
// not up to that.
//
// Errors: as of [Authority.Account].
func (a *Authority) Current(ctx context.Context, s wire.Space) (bool, error) {
	broker, rec, _, err := a.account(ctx, s)
	if err != nil {
		return false, fmt.Errorf("check account of space %q: %w", s, err)
	}
	for _, p := range trust.Profiles() {
		if len(rec.KeysOf(p)) == 0 {
			return false, nil
		}
	}
	if rec.Callout != nil {
		for _, kind := range trust.CalloutKinds() {
			if len(rec.Callout.KeysOf(kind)) == 0 {
				return false, nil
			}
		}
	}
	return current(rec, broker), nil
}

// SystemCurrent is [Authority.Current] of the system account, which [Init] brings up to this build.
func (a *Authority) SystemCurrent(ctx context.Context) (bool, error) {
	rec, _, err := a.loadBroker(ctx)
	if err != nil {
		return false, fmt.Errorf("check system account: %w", err)
	}
	for _, kind := range trust.SystemKinds() {
		if len(rec.System.KeysOf(kind)) == 0 {
			return false, nil
		}
	}
	return systemCurrent(rec.System), nil
}
