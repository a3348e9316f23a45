package spec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/trust"
)

// TestASecondInstanceSharesTheWork puts a responder written from SPEC.md beside the delivery service: each request gets
// exactly one answer, from either, on the subject derived from the request's.
func TestASecondInstanceSharesTheWork(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	service, err := m.Node().Authority().ServiceCredential(t.Context(), m.Space(), trust.Delivery, 0)
	if err != nil {
		t.Fatal(err)
	}
	second := connect(t, m, service.Reveal())
	if _, err := second.nc.QueueSubscribe(second.subject("ep.one.delivery.>"), "delivery", func(msg *nats.Msg) {
		request := strings.Split(msg.Subject, ".") // cotal <space> ep one delivery <command> <owner> <actor> <uid> <nonce>
		reply := second.subject("ep.reply.delivery.second.1.%s", strings.Join(request[6:], "."))
		body := encode(t, object{"v": 1, "id": decode(t, msg.Data)["id"], "ok": true, "data": object{}})
		if err := second.nc.Publish(reply, []byte(body)); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := second.nc.Flush(); err != nil {
		t.Fatal(err)
	}

	ada := connect(t, m, m.Credentials(t, "ada", nil).Reveal())
	replies := ada.subscribe(ada.subject("ep.reply.delivery.*.*.local.ada.%s.*", ada.uid))
	const requests = 60
	for i := range requests {
		nonce := fmt.Sprintf("%022d", i)
		body := encode(t, object{
			"v": 1, "id": "r1", "class": "ephemeral", "replyExpected": true, "op": object{"endpoint": "delivery", "command": "roster"},
			"from": object{"id": "local.ada", "name": "ada"}, "deadlineMs": 5000,
		})
		if err := ada.nc.Publish(ada.subject("ep.one.delivery.roster.local.ada.%s.%s", ada.uid, nonce), []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	byInstance, byNonce := map[string]int{}, map[string]int{}
	for range requests {
		msg := next(t, replies)
		tokens := strings.Split(msg.Subject, ".")
		byInstance[tokens[5]]++
		byNonce[tokens[len(tokens)-1]]++
		if got := decode(t, msg.Data); got["ok"] != true {
			t.Errorf("reply = %v", got)
		}
	}
	if len(byNonce) != requests || len(byInstance) != 2 || byInstance["second"] == 0 {
		t.Errorf("%d requests answered by %v; want each answered once, some by either instance", len(byNonce), byInstance)
	}
}
