package race_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// The tests below hold the checker itself to account: what is in order passes, and each kind of disorder is told.

func at(ms int) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(ms) * time.Millisecond) }

const ownerOf = "u_g5mclrofwa6pirb3p4yeigemze"

func name(actor string) wire.Principal { return wire.Principal{Owner: ownerOf, Actor: actor} }

// state is a version of a grant, stored at a millisecond that is also its sequence.
func state(ms int, actor string, uid wire.UID, epoch uint64, by string, edit func(*trust.Grant)) version {
	g := trust.Grant{
		Ver: trust.GrantVersion, Owner: ownerOf, Actor: actor, UID: uid, Epoch: epoch, Kind: trust.KindInteractive, State: trust.GrantActive,
		AllowSubscribe: []string{"team.>"}, By: by,
	}
	if edit != nil {
		edit(&g)
	}
	return version{uint64(ms), at(ms), g}
}

func wrote(id, actor string, from, to int, v version, subscribe ...string) *op {
	return &op{
		kind: opGrant, id: id, principal: name(actor), begin: at(from), end: at(to), request: auth.GrantRequest{Subscribe: subscribe},
		change: auth.GrantChange{Grant: v.grant, Changed: true},
	}
}

func under(v version, parent string, uid wire.UID) version {
	v.grant.Parent, v.grant.ParentUID = name(parent).String(), uid
	return v
}

// decision is a connection that was asked for under a life and epoch.
func decision(actor string, uid wire.UID, epoch uint64, key string, from, to int, err error) *op {
	l := wire.Lifecycle{Principal: name(actor), UID: uid}
	o := &op{kind: opConnect, id: "office", principal: name(actor), life: l, epoch: epoch, key: key, begin: at(from), end: at(to), err: err}
	if err == nil {
		o.given = trust.Grant{UID: uid, Epoch: epoch, AllowSubscribe: []string{"team.>"}}
	}
	return o
}

func denied(r trust.Reason) error { return trust.Deny(wire.CodePermissionDenied, r, "no") }

// fine is a history in order: ada is granted, narrowed, and revoked; a child of hers with her.
func fine() *run {
	first := state(10, "ada", "A", 1, "g1", nil)
	second := state(30, "ada", "A", 2, "g2", func(g *trust.Grant) { g.AllowSubscribe, g.Refusing = []string{"team.a"}, 2 })
	unmarked := state(34, "ada", "A", 2, "g2", func(g *trust.Grant) { g.AllowSubscribe = []string{"team.a"} })
	retiring := state(60, "ada", "A", 3, "g2", func(g *trust.Grant) { g.AllowSubscribe, g.State = []string{"team.a"}, trust.GrantRetiring })
	retired := state(70, "ada", "A", 3, "g2", func(g *trust.Grant) { g.AllowSubscribe, g.State = []string{"team.a"}, trust.GrantRetired })
	child := under(state(20, "child", "C", 1, "g3", nil), "ada", "A")
	childEnds := under(state(62, "child", "C", 2, "g3", func(g *trust.Grant) { g.State = trust.GrantRetiring }), "ada", "A")
	childEnded := under(state(66, "child", "C", 2, "g3", func(g *trust.Grant) { g.State = trust.GrantRetired }), "ada", "A")
	narrowing := wrote("g2", "ada", 29, 35, second, "team.a")
	narrowing.change.Narrowed, narrowing.change.Exceeding = true, []wire.Principal{name("child")}
	return &run{
		versions: map[wire.Principal][]version{name("ada"): {first, second, unmarked, retiring, retired}, name("child"): {child, childEnds, childEnded}},
		ops: []*op{
			wrote("g1", "ada", 5, 12, first, "team.>"), wrote("g3", "child", 15, 21, child, "team.>"), narrowing,
			{kind: opRevoke, id: "r1", principal: name("ada"), begin: at(59), end: at(71)},
			decision("ada", "A", 1, "k1", 22, 24, nil),
			decision("child", "C", 1, "k2", 22, 24, nil),
			decision("ada", "A", 1, "k3", 28, 32, denied(trust.ReasonSuperseded)),
			decision("child", "C", 1, "k4", 31, 33, denied(trust.ReasonExceedsParent)),
			decision("child", "C", 1, "k5", 61, 61, denied(trust.ReasonParent)),
			{kind: opKnock, principal: name("ada"), life: first.grant.Lifecycle(), epoch: 1, begin: at(21), end: at(25)},
			{kind: opExchange, principal: name("ada"), begin: at(1), end: at(3), err: denied(trust.ReasonNotGranted)},
		},
		listings: []listing{{at(25), at(26), []string{"k1", "k2"}}, {at(36), at(37), nil}, {at(72), at(73), nil}},
	}
}

func TestCheckerTakesWhatIsInOrder(t *testing.T) {
	t.Parallel()
	if wrong := fine().check(); len(wrong) > 0 {
		t.Errorf("a history in order: %s", strings.Join(wrong, "\n"))
	}
}

func TestCheckerTellsDisorder(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		edit func(r *run)
		want string
	}{
		"lost update": {func(r *run) { r.versions[name("ada")][1].grant.AllowSubscribe = []string{"team.>"} }, "a change was lost"},
		"two authors": {func(r *run) {
			o := *r.ops[0]
			o.id = "g9"
			r.ops = append(r.ops, &o)
		}, "which is not there"},
		"no author":      {func(r *run) { r.versions[name("child")][0].grant.By = "g1" }, "which is not"},
		"skipped epoch":  {func(r *run) { r.versions[name("ada")][3].grant.Epoch = 4 }, "epoch 4 follows 2"},
		"epoch twice":    {func(r *run) { r.versions[name("ada")][1].grant.Epoch = 1 }, "two states of epoch 1"},
		"back from dead": {func(r *run) { r.versions[name("ada")][4].grant.State = trust.GrantActive }, "two states of epoch 3"},
		"unasked":        {func(r *run) { r.ops = slices.Delete(r.ops, 3, 4) }, "nobody revoked it"},
		"half done":      {func(r *run) { r.versions[name("ada")] = r.versions[name("ada")][:4] }, "nothing is retired"},
		"let in late": {func(r *run) {
			r.ops = append(r.ops, decision("ada", "A", 1, "k9", 40, 42, nil))
		}, "which nothing explains"},
		"let in under a parent that is gone": {func(r *run) {
			r.ops = append(r.ops, decision("child", "C", 1, "k9", 61, 61, nil))
		}, "which nothing explains"},
		"refused without cause": {func(r *run) {
			r.ops = append(r.ops, decision("ada", "A", 1, "k9", 22, 24, denied(trust.ReasonRevoked)))
		}, "which nothing explains"},
		"other rights": {func(r *run) { r.ops[4].given.AllowSubscribe = []string{"general"} }, "rights that epoch 1 does not hold"},
		"let in by nobody": {func(r *run) {
			r.ops = append(r.ops, &op{kind: opKnock, principal: name("ada"), life: r.ops[4].life, epoch: 1, begin: at(50), end: at(51)})
		}, "no authority had decided that"},
		"alive after narrowing":              {func(r *run) { r.listings[1].keys = []string{"k1"} }, "narrowed by g2"},
		"child alive after narrowing":        {func(r *run) { r.listings[1].keys = []string{"k2"} }, "held more than the narrowed grant"},
		"alive after the end of a life":      {func(r *run) { r.listings[2].keys = []string{"k2"} }, "its life is retired"},
		"connection that nobody decided":     {func(r *run) { r.listings[0].keys = []string{"k7"} }, "no authority had decided that"},
		"conflict without a change":          {func(r *run) { r.ops = append(r.ops, conflicted()) }, "a change that is not there"},
		"revoke of what is there, not found": {func(r *run) { r.ops = append(r.ops, notFound()) }, "it was there all the time"},
	} {
		r := fine()
		c.edit(r)
		wrong := r.check()
		if !slices.ContainsFunc(wrong, func(s string) bool { return strings.Contains(s, c.want) }) {
			t.Errorf("%s: the checker says %q, want %q", what, wrong, c.want)
		}
	}
}

func conflicted() *op {
	return &op{kind: opGrant, id: "g8", principal: name("ada"), begin: at(40), end: at(41), err: wire.Errorf(wire.CodeConflict, "no")}
}

func notFound() *op {
	return &op{kind: opRevoke, id: "r8", principal: name("ada"), begin: at(40), end: at(41), err: wire.Errorf(wire.CodeNotFound, "no")}
}

// TestAnAuthorityThatLogsNothingIsCaught breaks the order on purpose: an authority that decides by the grant, and neither writes
// down that it did nor looks again. A revocation that comes between its look and its answer finds nothing to wait for, and the
// connection outlives it.
func TestAnAuthorityThatLogsNothingIsCaught(t *testing.T) {
	t.Parallel()
	for what, broken := range map[string]bool{"as it is": false, "broken": true} {
		w := newWorld(t)
		ctx, s, ada := t.Context(), w.Space(), wire.Principal{Owner: w.owner("user-1"), Actor: "ada"}
		first := w.offices[0].auth
		looked, revoked := make(chan struct{}), make(chan struct{})
		for _, o := range w.offices {
			o.decide = func(ctx context.Context, s wire.Space, req auth.ConnectRequest) (string, auth.Admission, error) {
				if !broken {
					close(looked)
					return o.auth.Connect(ctx, s, req)
				}
				adm, err := o.auth.AdmitPerson(ctx, s, auth.PersonRequest{Owner: req.Owner, Actor: req.Actor, Scope: req.Scope})
				close(looked)
				<-revoked
				if err != nil {
					return "", adm, err
				}
				g := adm.Grant
				token, err := o.auth.Mint().ConnectionJWT(ctx, s, mint.ConnectionRequest{UserKey: req.UserKey, Expires: req.Expires, UserRequest: mint.UserRequest{
					Space: s, Profile: trust.Agent, Principal: g.Principal(), UID: g.UID, Subscribe: g.AllowSubscribe, Publish: g.AllowPublish,
				}})
				return token, adm, err
			}
		}
		grant := &op{kind: opGrant, id: "g1", principal: ada, begin: time.Now(), request: auth.GrantRequest{
			Space: s, Owner: ada.Owner, Actor: ada.Actor, By: "g1", Subscribe: []string{"team.>"}, Scope: []string{},
		}}
		grant.change, grant.err = first.Grant(ctx, grant.request)
		grant.end = time.Now()
		w.note(grant)
		p := &who{sub: "user-1", actor: "ada", life: grant.change.Grant.Lifecycle()}
		c := &client{w: w, t: t, name: "c0", crowd: []*who{p}}
		for j, o := range w.offices {
			c.xs[j] = o.exchange(t)
		}
		c.exchange(p, 0)
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.knockWith(p, 0)
		}()
		<-looked
		rev := &op{kind: opRevoke, id: "r1", principal: ada, begin: time.Now()}
		_, rev.err = first.Revoke(ctx, s, ada)
		rev.end = time.Now()
		w.note(rev)
		close(revoked)
		<-done
		if err := errors.Join(grant.err, rev.err, w.list(ctx)); err != nil {
			t.Fatal(err)
		}
		w.run.versions = w.history(t)
		wrong := w.run.check()
		if caught := slices.ContainsFunc(wrong, func(s string) bool { return strings.Contains(s, "its life is retired") }); caught != broken {
			t.Errorf("%s: the checker says %q", what, wrong)
		}
	}
}
