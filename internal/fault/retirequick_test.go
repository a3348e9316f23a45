package fault_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestNobodyPutsOffARevocation: whoever is about to be revoked has connected as often as a life may, or had agents that came and went.
// What that left in the records is not read before connections are ended, or they would live for as long as it takes.
func TestNobodyPutsOffARevocation(t *testing.T) {
	const left = 400 // of what there may be thousands of
	for name, leave := range map[string]func(st *stage, t *testing.T, l wire.Lifecycle){
		"connections": func(st *stage, t *testing.T, l wire.Lifecycle) {
			for range left {
				err := st.grants.LogMint(t.Context(), l.UID, space.Mint{UserKey: newUserKey(t), Epoch: 1, Expires: time.Now().Add(15 * time.Minute), Connection: true})
				if err != nil {
					t.Fatal(err)
				}
			}
		},
		"agents_that_ended": func(st *stage, t *testing.T, l wire.Lifecycle) {
			for i := range left {
				g := trust.Grant{
					Ver: trust.GrantVersion, Owner: l.Owner, Actor: fmt.Sprintf("ended_%d", i), UID: wire.NewUID(), Epoch: 1, Kind: trust.KindManaged,
					State: trust.GrantActive, Parent: l.Principal.String(), ParentUID: l.UID, CreatedAt: time.Now().UTC(), By: "test",
				}
				rev, err := st.grants.Create(t.Context(), g)
				if err == nil {
					g.State = trust.GrantRetired
					_, err = st.grants.Update(t.Context(), g, rev)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cotaltest.Bubble(t, func(t *testing.T) {
				st := newStage(t, memstore.New(), true, false)
				root := st.grant(t, "ada")
				leave(st, t, root.Identity().Lifecycle)
				time.Sleep(2 * time.Minute)
				nc := st.connect(t, root)
				var mu sync.Mutex // guards what follows
				reads, ending := 0, false
				a := st.watched(t, func(subject string) {
					mu.Lock()
					defer mu.Unlock()
					ending = ending || strings.Contains(subject, "CONNZ")
					if !ending && strings.Contains(subject, ".MSG.GET.") {
						reads++
					}
				})
				if _, err := a.Revoke(t.Context(), st.Space(), root.Identity().Principal); err != nil {
					t.Fatal(err)
				}
				if !nc.IsClosed() {
					t.Error("the connection is not ended")
				}
				if reads > left/10 {
					t.Errorf("%d records were read before the first connection was ended", reads)
				}
			})
		})
	}
}
