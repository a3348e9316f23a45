package delivery_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Who asks about a channel hears of each name whether the mention reaches somebody.
func TestReachOfMentions(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		ada := asker(t, m, agent(t, m, "ada", ""))
		start(t, m, agent(t, m, "helper", ""), endpoint.Options{}, nil)
		agent(t, m, "nova", "")
		issue(t, m, "lib", auth.Request{Subscribe: []string{"books"}})
		agent(t, m, "ex", "")
		if _, err := m.Node().Authority().Revoke(t.Context(), m.Space(), wire.Principal{Owner: wire.LocalOwner, Actor: "ex"}); err != nil {
			t.Fatal(err)
		}
		soon()
		r, err := ada.Reach(t.Context(), wire.ReachRequest{
			Channel: "gone", Mentions: []string{"nova", "nobody", "helper", "local.nova", "lib", "ex", "ada", "local.nobody", "Nova"},
		})
		if err != nil {
			t.Fatal(err)
		}
		want := []wire.MentionReach{
			{Name: "nova", Principal: "local.nova", Tier: wire.ReachStored, Reason: wire.MentionOffline},
			{Name: "nobody", Tier: wire.ReachNobody, Reason: wire.MentionUnknown},
			{Name: "helper", Principal: "local.helper", Tier: wire.ReachLive},
			{Name: "local.nova", Principal: "local.nova", Tier: wire.ReachStored, Reason: wire.MentionOffline},
			{Name: "lib", Principal: "local.lib", Tier: wire.ReachNobody, Reason: wire.MentionUnread},
			{Name: "ex", Tier: wire.ReachNobody, Reason: wire.MentionUnknown},
			{Name: "ada", Principal: "local.ada", Tier: wire.ReachNobody, Reason: wire.MentionSelf},
			{Name: "local.nobody", Tier: wire.ReachNobody, Reason: wire.MentionUnknown},
			{Name: "Nova", Tier: wire.ReachNobody, Reason: wire.MentionUnknown}, // a mention is in lower case
		}
		if diff := cmp.Diff(want, r.Mentions); diff != "" {
			t.Errorf("mentions (-want +got):\n%s", diff)
		}
		for what, in := range map[string]wire.ReachRequest{
			"beside a principal": {To: "local.nova", Mentions: []string{"nova"}},
			"too many":           {Channel: "general", Mentions: slices.Repeat([]string{"nova"}, wire.MaxMentioned+1)},
			"no name":            {Channel: "general", Mentions: []string{""}},
			"a long name":        {Channel: "general", Mentions: []string{string(make([]byte, 4*wire.MaxName+1))}},
		} {
			if r, err := ada.Reach(t.Context(), in); !errors.Is(err, wire.ErrBadRequest) {
				t.Errorf("%s: reach = %+v, %v, want bad-request", what, r, err)
			}
		}
	})
}

// A name that several have means nobody, and its principal one.
func TestReachOfAnAmbiguousMention(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada, dan, dan2 := lifecycle("ada"), lifecycle("dan"), other("dan")
	for _, l := range []wire.Lifecycle{ada, dan, dan2} {
		m.grant(t, l, "general")
	}
	r := ask[wire.ReachReply](t, m.caller(t, ada), wire.CommandReach, wire.ReachRequest{Channel: "general", Mentions: []string{"dan", "local.dan"}})
	want := []wire.MentionReach{
		{Name: "dan", Tier: wire.ReachNobody, Reason: wire.MentionAmbiguous},
		{Name: "local.dan", Principal: "local.dan", Tier: wire.ReachStored, Reason: wire.MentionOffline},
	}
	if diff := cmp.Diff(want, r.Mentions); diff != "" {
		t.Errorf("mentions (-want +got):\n%s", diff)
	}
}

// Who may neither read nor post to a channel is not told who may.
func TestReachOfMentionsNeedsARight(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	eve := m.Connect(t, issue(t, m, "eve", auth.Request{Subscribe: []string{"general"}, Publish: []string{"news"}}), nil)
	agent(t, m, "nova", "")
	for channel, code := range map[string]wire.Code{"general": "", "news": "", "secret": wire.CodePermissionDenied} {
		r, err := eve.Reach(ctxFor(t), wire.ReachRequest{Channel: channel, Mentions: []string{"nova", "nobody"}})
		if wire.CodeOf(err) != code || err != nil && len(r.Mentions) != 0 || err == nil && len(r.Mentions) != 2 {
			t.Errorf("reach of channel %q = %+v, %v, want code %q", channel, r, err, code)
		}
	}
	// Neither is one whose grant does not stand any more.
	mesh := newMesh(t)
	mesh.serve(t, nil)
	gone := lifecycle("gone")
	mesh.grantAs(t, gone, func(g *trust.Grant) { g.State = trust.GrantRetired })
	in := wire.ReachRequest{Channel: "general", Mentions: []string{"gone"}}
	if r, err := try[wire.ReachReply](t, mesh.caller(t, gone), wire.CommandReach, in); !errors.Is(err, wire.ErrPermissionDenied) || len(r.Mentions) != 0 {
		t.Errorf("reach of a retired grant = %+v, %v, want permission-denied", r, err)
	}
}
