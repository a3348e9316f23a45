package attack_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestForgeSender shows that nobody speaks as somebody else, on no message kind, nor outside the declared
// channels, and that the refused posts leave nothing in the streams.
func TestForgeSender(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	victim := m.Credentials(t, "victim", nil).Identity()
	in := intrude(t, m, m.Credentials(t, "mallory", &cotaltest.Peer{Role: "reviewer", Publish: []string{"general", "team.>"}}))
	s := m.Space()
	me, other := local("mallory"), wire.Principal{Owner: "u_" + "abcdefghijklmnopqrstuvwxyz", Actor: "mallory"}
	subject := must[string](t)
	for name, subj := range map[string]string{
		"channel as other actor":      subject(wire.ChannelSubject(s, victim.Principal, "general")),
		"channel as other owner":      subject(wire.ChannelSubject(s, other, "general")),
		"undeclared channel":          subject(wire.ChannelSubject(s, me, "secret")),
		"parent of declared pattern":  subject(wire.ChannelSubject(s, me, "team")),
		"direct as other actor":       subject(wire.DirectSubject(s, me, victim.Principal)),
		"direct as other owner":       subject(wire.DirectSubject(s, victim.Principal, other)),
		"role as other actor":         subject(wire.RoleSubject(s, "reviewer", victim.Principal)),
		"role as other owner":         subject(wire.RoleSubject(s, "reviewer", other)),
		"live rail as self":           subject(wire.LiveSubject(s, me, "general")),
		"live rail as other":          subject(wire.LiveSubject(s, victim.Principal, "general")),
		"mention pointer to victim":   subject(wire.MentionSubject(s, victim.Lifecycle)),
		"presence of victim":          subject(wire.PresenceSubject(s, victim.Principal)),
		"request as victim":           subject(wire.RequestSubject{Space: s, Rail: wire.RailOne, Endpoint: "delivery", Command: "history", Caller: victim.Lifecycle, Nonce: "abcdefghijklmnopqrstuv"}.Subject()),
		"request with foreign uid":    subject(wire.RequestSubject{Space: s, Rail: wire.RailOne, Endpoint: "delivery", Command: "history", Caller: wire.Lifecycle{Principal: me, UID: victim.UID}, Nonce: "abcdefghijklmnopqrstuv"}.Subject()),
		"ungranted command":           subject(wire.RequestSubject{Space: s, Rail: wire.RailOne, Endpoint: "delivery", Command: "channel-set", Caller: in.id.Lifecycle, Nonce: "abcdefghijklmnopqrstuv"}.Subject()),
		"reply of a service":          subject(wire.ReplySubject{Space: s, Endpoint: "delivery", Instance: "x", Epoch: "1", Caller: victim.Lifecycle, Nonce: "abcdefghijklmnopqrstuv"}.Subject()),
		"roster event":                subject(wire.EventSubject{Space: s, Endpoint: "delivery", Instance: "x", Epoch: "1", Topic: "roster"}.Subject()),
		"inbox of victim":             wire.InboxPrefix(victim.Inbox) + ".x.y",
		"system account":              "$SYS.REQ.CLAIMS.UPDATE",
		"node command":                trust.NodeSubject("stop"),
		"channel of another space":    subject(wire.ChannelSubject("elsewhere", me, "general")),
		"channel registry":            wire.RecordPrefix(wire.ChannelsBucket(s)) + "general",
		"grant record of self":        wire.RecordPrefix(wire.AuthorityBucket(s)) + "grant.local.mallory",
		"membership of self":          wire.RecordPrefix(wire.MembersBucket(s)) + "general.local.mallory",
		"cursor of self":              wire.RecordPrefix(wire.CursorsBucket(s)) + "local.mallory",
		"republish by stream subject": "$JS.API.STREAM.UPDATE." + wire.ChatStream(s),
	} {
		t.Run(name, func(t *testing.T) { in.mustNotPublish(t, subj, []byte(`{}`)) })
	}

	admin := must[*trust.Credentials](t)(m.Node().Authority().ServiceCredential(t.Context(), s, trust.Provisioner, 0))
	js := must[jetstream.JetStream](t)(jetstream.New(intrude(t, m, admin).nc))
	for _, name := range []string{wire.ChatStream(s), wire.DirectStream(s), wire.RoleStream(s), wire.MentionStream(s)} {
		stream := must[jetstream.Stream](t)(js.Stream(t.Context(), name))
		if got := stream.CachedInfo().State.Msgs; got != 0 {
			t.Errorf("stream %s holds %d messages after refused posts, want 0", name, got)
		}
	}
}
