package auth

import (
	"context"
	"fmt"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// Credentials returns what the issuance log holds of a lifecycle: the credentials that may not have expired yet, oldest
// first. A revoked credential stays in the log until it has expired. None means that every one has.
func (a *Authority) Credentials(ctx context.Context, s wire.Space, uid wire.UID) ([]space.Mint, error) {
	ses, err := a.session(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("list credentials of %q: %w", uid, err)
	}
	mints, err := ses.grants.Mints(ctx, uid)
	if err != nil {
		return nil, fmt.Errorf("list credentials of %q: %w", uid, err)
	}
	return mints, nil
}
