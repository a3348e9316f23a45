package actor

import (
	"context"

	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// owner returns the owner that the flags name, and the empty string when they name none.
//
// Errors: failed-precondition with reason static-mode for a subject in a space that knows no people; those of the records.
func (w *whose) resolve(ctx context.Context, t *target.Target, people bool, all []trust.Grant) (string, error) {
	switch {
	case w.owner != "":
		return ownerOf(all, w.owner)
	case w.sub == "":
		return "", nil
	case !people:
		return "", trust.Deny(wire.CodeFailedPrecondition, trust.ReasonStaticMode,
			"space %q works with credential files and knows nobody by a subject; leave out --sub", t.Space())
	}
	store, err := t.Store()
	if err != nil {
		return "", err
	}
	pin, err := oidc.LoadPin(ctx, store, t.Space())
	if err != nil {
		return "", err
	}
	owners, err := trust.LoadOwnerSecret(ctx, store, t.Space())
	if err != nil {
		return "", err
	}
	return owners.Owner(pin.Issuer, w.sub)
}
