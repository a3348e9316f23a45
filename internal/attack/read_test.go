package attack_test

import (
	"fmt"
	"testing"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// streamVerbs is every JetStream API verb that names a stream, with a body that would serve the attacker.
func streamVerbs(s wire.Space, stream, filter, inbox string) map[string]string {
	return map[string]string{
		"$JS.API.STREAM.INFO." + stream:                        fmt.Sprintf(`{"subjects_filter":%q}`, filter),
		"$JS.API.STREAM.MSG.GET." + stream:                     `{"seq":1}`,
		"$JS.API.STREAM.MSG.DELETE." + stream:                  `{"seq":1}`,
		"$JS.API.STREAM.SNAPSHOT." + stream:                    fmt.Sprintf(`{"deliver_subject":%q}`, inbox),
		"$JS.API.STREAM.RESTORE." + stream:                     `{}`,
		"$JS.API.STREAM.PURGE." + stream:                       ``,
		"$JS.API.STREAM.DELETE." + stream:                      ``,
		"$JS.API.STREAM.UPDATE." + stream:                      fmt.Sprintf(`{"name":%q,"subjects":[">"]}`, stream),
		"$JS.API.STREAM.CREATE.MINE":                           fmt.Sprintf(`{"name":"MINE","sources":[{"name":%q}]}`, stream),
		"$JS.API.STREAM.CREATE.MIRROR":                         fmt.Sprintf(`{"name":"MIRROR","mirror":{"name":%q}}`, stream),
		"$JS.API.STREAM.LEADER.STEPDOWN." + stream:             ``,
		"$JS.API.STREAM.PEER.REMOVE." + stream:                 `{"peer":"x"}`,
		"$JS.API.DIRECT.GET." + stream:                         `{"seq":1}`,
		"$JS.API.DIRECT.GET." + stream + "." + filter:          ``,
		"$JS.API.CONSUMER.CREATE." + stream:                    fmt.Sprintf(`{"stream_name":%q,"config":{"ack_policy":"none","filter_subjects":[%q]}}`, stream, filter),
		"$JS.API.CONSUMER.CREATE." + stream + ".spy":           fmt.Sprintf(`{"stream_name":%q,"config":{"name":"spy","ack_policy":"none"}}`, stream),
		"$JS.API.CONSUMER.CREATE." + stream + ".spy." + filter: fmt.Sprintf(`{"stream_name":%q,"config":{"name":"spy","filter_subject":%q,"deliver_subject":%q}}`, stream, filter, inbox),
		"$JS.API.CONSUMER.DURABLE.CREATE." + stream + ".spy":   fmt.Sprintf(`{"stream_name":%q,"config":{"durable_name":"spy","ack_policy":"explicit"}}`, stream),
		"$JS.API.CONSUMER.NAMES." + stream:                     ``,
		"$JS.API.CONSUMER.LIST." + stream:                      ``,
		"$JS.API.STREAM.NAMES":                                 ``,
		"$JS.API.STREAM.LIST":                                  ``,
		"$JS.API.INFO":                                         ``,
		"$JS.API.META.LEADER.STEPDOWN":                         ``,
		"$JS.FC." + stream + ".x.y":                            ``,
	}
}

// consumerVerbs is every verb on an existing consumer that is not the attacker's.
func consumerVerbs(stream, consumer string) map[string]string {
	return map[string]string{
		"$JS.API.CONSUMER.MSG.NEXT." + stream + "." + consumer:        `{"batch":10,"no_wait":true}`,
		"$JS.API.CONSUMER.INFO." + stream + "." + consumer:            ``,
		"$JS.API.CONSUMER.DELETE." + stream + "." + consumer:          ``,
		"$JS.API.CONSUMER.PAUSE." + stream + "." + consumer:           `{"pause_until":"2999-01-01T00:00:00Z"}`,
		"$JS.API.CONSUMER.UNPIN." + stream + "." + consumer:           `{"group":"x"}`,
		"$JS.API.CONSUMER.LEADER.STEPDOWN." + stream + "." + consumer: ``,
		"$JS.ACK." + stream + "." + consumer + ".1.1.1.1.1":           `+ACK`,
	}
}

// TestReadAnothersMessages shows that no JetStream or KV verb, and no subscription, gives an agent or an
// observer what was sent to somebody else.
func TestReadAnothersMessages(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	s := m.Space()
	victim := m.Credentials(t, "victim", &cotaltest.Peer{Role: "vault"})
	v := victim.Identity()
	friend := m.Endpoint(t, "friend", nil)
	if _, err := friend.Direct(t.Context(), v.Principal, endpoint.Draft{Parts: []wire.Part{wire.Text("for your eyes only")}}); err != nil {
		t.Fatal(err)
	}
	observer := must[*trust.Credentials](t)(m.Node().Authority().Personal(t.Context(), s, trust.Observer, "watcher", 0))
	for _, who := range []struct {
		name  string
		creds *trust.Credentials
	}{
		{"agent", m.Credentials(t, "mallory", &cotaltest.Peer{Role: "reviewer"})},
		{"observer", observer},
	} {
		t.Run(who.name, func(t *testing.T) {
			in := intrude(t, m, who.creds)
			inbox := wire.InboxPrefix(in.id.Inbox) + ".loot"
			direct := must[string](t)(wire.DirectFilter(s, v.Principal))
			streams := map[string]string{
				wire.DirectStream(s): direct, wire.RoleStream(s): must[string](t)(wire.RoleFilter(s, "vault")),
				wire.MentionStream(s): wire.MentionRecords(s) + ">", wire.DeadStream(s): wire.DeadNotices, wire.ChatStream(s): "cotal." + string(s) + ".chat.>",
			}
			for _, b := range []string{wire.ChannelsBucket(s), wire.MembersBucket(s), wire.CursorsBucket(s), wire.AuthorityBucket(s)} {
				streams["KV_"+b] = wire.RecordPrefix(b) + ">"
			}
			streams["KV_"+wire.PresenceBucket(s)] = "$KV." + wire.PresenceBucket(s) + ".>"
			for stream, filter := range streams {
				for subject, body := range streamVerbs(s, stream, filter, inbox) {
					in.mustNotPublish(t, subject, []byte(body))
				}
			}
			for stream, durable := range map[string]string{
				wire.DirectStream(s): wire.DirectDurable(v.Lifecycle), wire.MentionStream(s): "x", wire.DeadStream(s): "x", wire.RoleStream(s): wire.RoleDurable("vault"),
			} {
				for subject, body := range consumerVerbs(stream, durable) {
					in.mustNotPublish(t, subject, []byte(body))
				}
			}
			for _, subject := range []string{
				">", "*.>", "cotal.>", direct, "cotal." + string(s) + ".inst.>", "cotal." + string(s) + ".svc.>", "cotal." + string(s) + ".chat.>",
				"cotal." + string(s) + ".dlv.>", must[string](t)(wire.MentionSubject(s, v.Lifecycle)), "$JS.EVENT.ADVISORY.>", "cotal." + string(s) + ".ep.>", "_INBOX.>", "_INBOX_*.>", wire.InboxPrefix(v.Inbox) + ".>",
				must[string](t)(wire.ReplyFilter(s, v.Lifecycle)), "$JS.>", "$JS.API.>", "$JS.EVENT.>", "$JS.ACK.>", "$KV.>", "$SYS.>",
				"$KV." + wire.PresenceBucket(s) + ".>", wire.RecordPrefix(wire.AuthorityBucket(s)) + ">", "$O.>", "_R_.>",
			} {
				in.mustNotSubscribe(t, subject)
			}
		})
	}

	got := 0
	ep := m.Connect(t, victim, nil)
	done := make(chan struct{})
	if err := ep.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
		got++
		if err := d.Ack(t.Context()); err != nil {
			t.Errorf("ack: %v", err)
		}
		close(done)
	}); err != nil {
		t.Fatal(err)
	}
	<-done
	if got != 1 {
		t.Errorf("victim received %d messages after the attacks, want 1", got)
	}
}
