package trust_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/cotaltest"
	spaces "github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestNobodyButTheAuthorityReachesAuditAndLeases: whoever holds another credential of the space tries to read, write, follow
// and remove what the authority wrote, directly and by replies of the broker. Delivery, which reads the grants, could read
// leases too, which are in one bucket with them and hold no secret; it cannot write them.
func TestNobodyButTheAuthorityReachesAuditAndLeases(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		r := newRealm(t)
		provision(t, r)
		js := r.jetStream(t, r.user(t, trust.Authority))
		audit, leases := spaces.NewAudit(js, space), spaces.NewLeases(js, space)
		event := spaces.AuditEvent{By: "authority", Action: spaces.ActionRevoke, Target: ada.String(), Outcome: spaces.OutcomeOK, Detail: "kept"}
		if err := audit.Append(t.Context(), event); err != nil {
			t.Fatal(err)
		}
		lease, err := leases.Acquire(t.Context(), "sweep", "node", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		auditStream, bucket := wire.AuditStream(space), "KV_"+wire.AuthorityBucket(space)
		record := "$JS.EVENT.AUDIT_main.local.ada.revoke.ok"
		leaseKey, fenceKey := wire.RecordPrefix(wire.AuthorityBucket(space))+"lease.sweep", lease.Guard().Subject
		for _, p := range trust.Profiles() {
			if p == trust.Authority {
				continue
			}
			holder := r.user(t, p)
			tries := slices.Concat(
				pubs("", record, "$JS.EVENT.AUDIT_main.-.-.connect.denied", leaseKey, fenceKey),
				pubs("$JS.API.", "STREAM.MSG.GET."+auditStream, "STREAM.MSG.DELETE."+auditStream, "STREAM.PURGE."+auditStream, "STREAM.SNAPSHOT."+auditStream,
					"DIRECT.GET."+auditStream, "DIRECT.GET."+auditStream+"."+record, "CONSUMER.CREATE."+auditStream, "CONSUMER.CREATE."+auditStream+".x."+record,
					"CONSUMER.DURABLE.CREATE."+auditStream+".x", "CONSUMER.MSG.NEXT."+auditStream+".x", "DIRECT.GET."+bucket, "DIRECT.GET."+bucket+"."+leaseKey,
					"CONSUMER.CREATE."+bucket+".x."+leaseKey, "STREAM.MSG.DELETE."+bucket, "STREAM.PURGE."+bucket),
				subs("", record, "$JS.EVENT.AUDIT_main.>", "$JS.EVENT.>", leaseKey, fenceKey, "$JS.EVENT.cotal_authority_main.>"),
			)
			if p != trust.Delivery {
				tries = append(tries, pubs("$JS.API.", "STREAM.MSG.GET."+bucket)...)
			}
			for what := range r.try(t, holder, tries) {
				t.Errorf("%s may %s %s", p, what.verb, what.subject)
			}
			r.replyTo(t, holder, p, record, leaseKey, fenceKey)
		}
		entries, _, err := audit.Read(t.Context(), spaces.AuditQuery{})
		if err != nil || len(entries) != 1 || entries[0].Unreadable != "" || entries[0].Detail != "kept" {
			t.Errorf("audit records after the attack = %+v, %v, want the one", entries, err)
		}
		if now, err := leases.Get(t.Context(), "sweep"); err != nil || now != lease {
			t.Errorf("lease after the attack = %+v, %v, want %+v", now, err, lease)
		}
	})
}

// replyTo publishes everything that a profile may publish with the subject of a record as the reply.
func (r *realm) replyTo(t *testing.T, h holder, p trust.Profile, records ...string) {
	t.Helper()
	template, err := trust.Template(p, space)
	if err != nil {
		t.Fatal(err)
	}
	nc, errs, err := r.connect(h)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, line := range template.Pub.Allow {
		subject := strings.NewReplacer("*", "x", ">", "x").Replace(filled(line))
		if strings.Contains(subject, ".STREAM.DELETE.") || strings.Contains(subject, ".STREAM.PURGE.") || strings.Contains(subject, ".MSG.DELETE.") {
			continue // what it may take away is not what this is about
		}
		for _, record := range records {
			if err := nc.PublishRequest(subject, record, nil); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-errs:
				if !errors.Is(err, nats.ErrPermissionViolation) {
					t.Errorf("%s: publish on %s with reply %s: %v", p, subject, record, err)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("%s: the broker took a publish on %s with reply %s", p, subject, record)
			}
		}
	}
}

// jetStream returns a context over a connection of its own.
func (r *realm) jetStream(t *testing.T, h holder) jetstream.JetStream {
	t.Helper()
	nc, _, err := r.connect(h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}
