package fault_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/authtest"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestNoQueueIsMadeForALifeThatEnded stops an authority, as a debugger or a starved machine does, just before it makes the queue
// of a life, while another one revokes that life from beginning to end. When the first goes on, nothing of the life may stay:
// nobody would ever look for it.
func TestNoQueueIsMadeForALifeThatEnded(t *testing.T) {
	for name, people := range map[string]bool{"people": true, "credential_files": false} {
		t.Run(name, func(t *testing.T) {
			cotaltest.Bubble(t, func(t *testing.T) {
				st := newStage(t, memstore.New(), people, false)
				root := wire.Principal{Owner: wire.LocalOwner, Actor: "late"}
				var grant trust.Grant
				if people {
					root.Owner = adasOwner
					st.grant(t, root.Actor)
					grant = st.grantOf(t, root)
				}
				var ended sync.Once
				a := st.watched(t, func(subject string) {
					if strings.Contains(subject, "CONSUMER.CREATE") {
						ended.Do(func() {
							if _, err := st.a.Revoke(t.Context(), st.Space(), root); err != nil {
								t.Errorf("Revoke: %v", err)
							}
						})
					}
				})
				var err error
				if people {
					_, _, err = a.Connect(t.Context(), st.Space(), auth.ConnectRequest{
						Lifecycle: grant.Lifecycle(), Epoch: grant.Epoch, Scope: grant.Scope, Expires: time.Now().Add(time.Minute), UserKey: newUserKey(t),
					})
				} else {
					_, err = a.Issue(t.Context(), auth.Request{Space: st.Space(), Actor: root.Actor})
				}
				if err == nil {
					t.Error("somebody was let in under a grant that had ended")
				}
				g := st.grantOf(t, root)
				if left := st.leftovers(t, g.Lifecycle()); g.State != trust.GrantRetired || len(left) != 0 {
					t.Errorf("the grant is %s, left of the life: %v", g.State, left)
				}
			})
		})
	}
}

// watched is an authority of its own whose changes are shown before they leave.
func (st *stage) watched(t *testing.T, see func(subject string)) *auth.Authority {
	t.Helper()
	tp := &tapped{steps: &steps{}, open: func() (net.Conn, error) { return st.InProcess().InProcessConn() }, see: see}
	m, err := newMortal(context.WithoutCancel(t.Context()), st.Store(), tp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.close)
	return m.Authority
}

func newUserKey(t *testing.T) string {
	t.Helper()
	k, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := k.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return public
}

// TestARevocationWaitsOnce revokes somebody with many agents who all left a moment ago. The broker may still be about to let one
// of them in that was decided before, which is waited for; for all of them at once, and not for one after the other.
func TestARevocationWaitsOnce(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		st := newStage(t, memstore.New(), true, false)
		root := st.grant(t, "ada").Identity().Lifecycle
		const agents = 20
		for i := range agents {
			agent, err := authtest.Grant(t.Context(), st.a, auth.GrantRequest{Space: st.Space(), Actor: fmt.Sprintf("agent_%d", i), Parent: &root})
			if err != nil {
				t.Fatal(err)
			}
			st.connect(t, st.bearer(t, st.grantOf(t, agent.Principal))).Close()
		}
		began := time.Now()
		out, err := st.a.Revoke(t.Context(), st.Space(), root.Principal)
		if err != nil || len(out.Below) != agents {
			t.Fatalf("Revoke = %+v, %v", out, err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("revoking somebody and %d agents took %v", agents, took)
		}
	})
}

// TestARevocationLeavesSuccessorsAlone: while somebody is being revoked, a name below them ends, and begins another life that has
// nothing to do with them.
func TestARevocationLeavesSuccessorsAlone(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		st := newStage(t, memstore.New(), true, false)
		f := st.newFamily(t, "ada")
		last := f.creds[2].Identity().Principal
		marks := wire.RecordPrefix(wire.AuthorityBucket(st.Space())) + "grant." + f.creds[1].Identity().Principal.String()
		var successor wire.UID
		var once sync.Once
		a := st.watched(t, func(subject string) {
			if subject != marks {
				return
			}
			once.Do(func() {
				if _, err := st.a.Revoke(t.Context(), st.Space(), last); err != nil {
					t.Errorf("Revoke: %v", err)
				}
				successor = st.grant(t, last.Actor).Identity().UID
			})
		})
		out, err := a.Revoke(t.Context(), st.Space(), f.root())
		if err != nil || len(out.Below) != 1 {
			t.Errorf("Revoke = %+v, %v, want one below", out, err)
		}
		if g := st.grantOf(t, last); successor == "" || g.UID != successor || g.State != trust.GrantActive {
			t.Errorf("the successor %q is %s, life %q", successor, g.State, g.UID)
		}
	})
}

// TestNobodyIsGrantedUnderALifeThatEnded revokes a principal from beginning to end at the moment at which somebody is about to be
// granted under it: after the look at the parent, before the write. Who revoked it has found no such child.
func TestNobodyIsGrantedUnderALifeThatEnded(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		st := newStage(t, memstore.New(), true, false)
		root := st.grant(t, "ada").Identity().Lifecycle
		child := wire.Principal{Owner: adasOwner, Actor: "child"}
		begins := wire.RecordPrefix(wire.AuthorityBucket(st.Space())) + "uid."
		var ended sync.Once
		a := st.watched(t, func(subject string) {
			if strings.HasPrefix(subject, begins) {
				ended.Do(func() {
					if _, err := st.a.Revoke(t.Context(), st.Space(), root.Principal); err != nil {
						t.Errorf("Revoke: %v", err)
					}
				})
			}
		})
		_, err := authtest.Grant(t.Context(), a, auth.GrantRequest{Space: st.Space(), Actor: child.Actor, Parent: &root})
		if trust.ReasonOf(err) != trust.ReasonParent {
			t.Errorf("GrantAgent under a life that ended meanwhile = %v, want parent-gone", err)
		}
		if g := st.grantOf(t, child); g.State != trust.GrantRetired {
			t.Errorf("the child is %s", g.State)
		}
	})
}
