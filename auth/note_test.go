package auth_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestNamesOfStrangersDoNotFillTheAudit: somebody with a login and no grant asks for another name each time. That leaves the records
// of one stranger; a principal that is granted something has records of its own.
func TestNamesOfStrangersDoNotFillTheAudit(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		a, s := m.Node().Authority(), m.Space()
		audit := auditOf(t, m)
		_, before, err := audit.Read(t.Context(), space.AuditQuery{Newest: true})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		deny := func(actor string, r trust.Reason) {
			p := wire.Principal{Owner: adasOwner, Actor: actor}
			a.NoteEntry(t.Context(), s, auth.Entry{
				Action: space.ActionExchange, Life: wire.Lifecycle{Principal: p}, From: "192.0.2.1",
				Denied: trust.Deny(wire.CodePermissionDenied, r, "no grant of %q", p),
			})
		}
		const names = 2000
		for i := range names {
			deny(fmt.Sprintf("n%d", i), trust.ReasonNotGranted)
			deny(fmt.Sprintf("n%d", i), trust.ReasonKeyProof)
		}
		deny("ada", trust.ReasonRevoked)
		time.Sleep(2 * time.Minute)
		entries, _, err := audit.Read(t.Context(), space.AuditQuery{After: before, Limit: space.MaxAuditPage})
		if err != nil {
			t.Fatal(err)
		}
		total, targets := map[trust.Reason]uint64{}, map[string]int{}
		for _, e := range entries {
			total[e.Reason] += max(e.Count, 1)
			targets[e.Target]++
		}
		if targets[""] != 4 || targets[adasOwner+".ada"] != 1 || len(targets) != 2 {
			t.Errorf("%d records, of them %d about nobody", len(entries), targets[""])
		}
		if total[trust.ReasonNotGranted] != names || total[trust.ReasonKeyProof] != names {
			t.Errorf("noted %v, want %d each", total, names)
		}
	})
}
