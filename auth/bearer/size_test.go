package bearer_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestTheBearerOfAGrantFits: with the longest scope that a grant may have, and the longest of everything else, a bearer is signed.
func TestTheBearerOfAGrantFits(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("n", wire.MaxToken)
	s, err := wire.ParseSpace(longest)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := bearer.EnsureKeys(t.Context(), memstore.New(), s)
	if err != nil {
		t.Fatal(err)
	}
	of := wire.Principal{Owner: owner, Actor: longest}
	c := claims(t)
	c.Act = bearer.Act{Owner: owner, Actor: longest, UID: uid, Epoch: math.MaxUint64, Inbox: string(uid), View: trust.ViewChannelWriter, Parent: of.String()}
	c.Scope = nil
	for i := 0; ; i++ {
		more := append(c.Scope, fmt.Sprintf("com_%s_%02d.%s", strings.Repeat("n", 55), i, strings.Repeat("c", 28)))
		if trust.CheckScopeSize(of, more) != nil {
			break
		}
		c.Scope = more
	}
	if len(c.Scope) >= trust.MaxCommands {
		t.Fatalf("%d entries do not reach the limit in bytes", len(c.Scope))
	}
	token, _, err := bearer.NewIssuer(s, keys).Sign(t.Context(), c, bearer.MaxHumanLife)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d entries make a bearer of %d bytes, limit %d", len(c.Scope), len(token), bearer.MaxToken)
	if _, err := bearer.NewValidator(s, keys, nil).Validate(t.Context(), token); err != nil {
		t.Error(err)
	}
}
