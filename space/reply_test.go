package space_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// TestRepliesCannotOverwriteRecords plays a member that may only post to a channel and names the subject of a record
// as the reply: the broker's acknowledgement must not become the record. The control shows that it would under "$KV.".
func TestRepliesCannotOverwriteRecords(t *testing.T) {
	t.Parallel()
	ada := lifecycle("ada").Principal
	post := must(wire.ChannelSubject(lab, ada, "general"))(t)
	srv := broker(t, func(o *server.Options) {
		account := server.NewAccount("A")
		o.Accounts = []*server.Account{account}
		o.Users = []*server.User{
			{Username: "owner", Account: account},
			{Username: "member", Account: account, Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: []string{post, "$JS.API.CONSUMER.MSG.NEXT.DM_lab.dm_x", "$JS.API.CONSUMER.INFO.DM_lab.dm_x", "$JS.ACK.DM_lab.dm_x.>"}},
			}},
		}
	})
	if err := must(srv.LookupAccount("A"))(t).EnableJetStream(nil, nil); err != nil {
		t.Fatal(err)
	}
	js := connect(t, srv, nats.UserInfo("owner", ""))
	ctx := ctxFor(t)
	if err := space.Ensure(ctx, js, lab, nil); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 16)
	member := connect(t, srv, nats.UserInfo("member", ""), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		refused <- err
	})).Conn()

	records := map[string]string{}
	for _, bucket := range []string{wire.AuthorityBucket(lab), wire.ChannelsBucket(lab), wire.MembersBucket(lab), wire.CursorsBucket(lab)} {
		records[space.BucketStream(bucket)] = wire.RecordPrefix(bucket) + "victim.record"
	}
	// Neither pointers to mentions nor the broker's notices of dead letters can be forged.
	victim := lifecycle("victim")
	records[wire.MentionStream(lab)] = must(wire.MentionRecord(lab, victim))(t)
	records[wire.DeadStream(lab)] = strings.Replace(wire.DeadFilter(wire.DirectStream(lab), wire.DirectDurable(victim)), "*", "MAX_DELIVERIES", 1)
	records[wire.AuditStream(lab)] = must(wire.AuditSubject(lab, victim.Principal, space.ActionRevoke, space.OutcomeOK))(t)
	for stream, subject := range records {
		must(js.Publish(ctx, subject, []byte("kept")))(t)
		if err := member.PublishRequest(post, subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-refused:
			if !strings.Contains(err.Error(), subject) {
				t.Errorf("broker refused %v, want a refusal that names %q", err, subject)
			}
		case <-time.After(time.Minute):
			t.Errorf("broker took a publish with reply %q", subject)
		}
		got := must(must(js.Stream(ctx, stream))(t).GetLastMsgForSubject(ctx, subject))(t)
		if string(got.Data) != "kept" {
			t.Errorf("record %q of %s = %q after the attack", subject, stream, got.Data)
		}
	}
	// No more does a pull from a queue, or a look at it, whose answer is the broker's.
	for _, subject := range []string{records[wire.MentionStream(lab)], records[wire.DeadStream(lab)], wire.DeadMarks(lab) + "1", records[wire.AuditStream(lab)]} {
		for _, verb := range []string{"$JS.API.CONSUMER.MSG.NEXT.DM_lab.dm_x", "$JS.API.CONSUMER.INFO.DM_lab.dm_x", "$JS.ACK.DM_lab.dm_x.1.1.1.1.1"} {
			if err := member.PublishRequest(verb, subject, nil); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-refused:
				if !strings.Contains(err.Error(), subject) {
					t.Errorf("broker refused %v, want a refusal that names %q", err, subject)
				}
			case <-time.After(time.Minute):
				t.Errorf("broker took %s with reply %q", verb, subject)
			}
		}
	}

	wantControl(t, js, member, post)
}

// wantControl shows that the attack works where it is not prevented.
func wantControl(t *testing.T, js jetstream.JetStream, member *nats.Conn, post string) {
	t.Helper()
	ctx := ctxFor(t)
	control := must(js.CreateStream(ctx, jetstream.StreamConfig{Name: "CONTROL", Subjects: []string{"$KV.control.>"}, MaxMsgsPerSubject: 1}))(t)
	if err := member.PublishRequest(post, "$KV.control.record", []byte("x")); err != nil {
		t.Fatal(err)
	}
	limit := time.After(time.Minute)
	for must(control.Info(ctx))(t).State.Msgs == 0 {
		select {
		case <-limit:
			t.Fatal("the broker no longer writes acknowledgements to chosen subjects: ADR 0010 can be superseded")
		default:
		}
	}
}
