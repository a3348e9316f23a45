package endpoint_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// notice publishes what delivery tells a sender.
func notice(t *testing.T, nc *nats.Conn, instance, topic string, body any) {
	t.Helper()
	subject := must(wire.EventSubject{Space: lab, Endpoint: wire.DeliveryEndpoint, Instance: instance, Epoch: "1", Topic: topic}.Subject())(t)
	if err := nc.Publish(subject, must(json.Marshal(body))(t)); err != nil {
		t.Fatal(err)
	}
}

func TestUndelivered(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		creds := w.user("ada")
		service := w.raw(must(w.mint.User(t.Context(), mint.UserRequest{
			Space: lab, Profile: trust.Delivery, Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "service"},
		}))(t))
		defer shut(service)
		events := newJournal[endpoint.Event]()
		ep := w.connect(creds, &endpoint.Options{OnEvent: events.add})
		bobs := newJournal[endpoint.Event]()
		w.connect(w.user("bob"), &endpoint.Options{OnEvent: bobs.add})

		direct := wire.ReceiptEvent{ID: "m1", Kind: "direct", Sequence: 7, Recipient: wire.RecipientReceipt{
			Principal: bob.String(), Stage: wire.StageDead, Reason: "inbox is full", Attempts: 10,
		}}
		job := wire.ReceiptEvent{ID: "m2", Kind: "role", Sequence: 7, Recipient: wire.RecipientReceipt{Role: "reviewer", Stage: wire.StageDead}}
		notice(t, service, "one", "receipt.local.ada", direct)
		notice(t, service, "two", "receipt.local.ada", direct) // a replica says the same
		notice(t, service, "one", "receipt.local.ada", job)
		notice(t, service, "one", "receipt.local.ada", "no notice")
		synctest.Wait()
		check(t, "renew", ep.Renew(t.Context(), w.again(creds, time.Hour)), nil)
		job.Sequence = 8
		notice(t, service, "one", "receipt.local.ada", job)
		time.Sleep(time.Second)
		job.Sequence = 9
		notice(t, service, "one", "receipt.local.ada", job)
		time.Sleep(time.Second)
		synctest.Wait()
		var got []string
		for _, ev := range events.list() {
			switch ev.(type) {
			case endpoint.EventUndelivered, endpoint.EventDropped:
				got = append(got, ev.String())
			}
		}
		want := `direct message "m1" was not delivered to local.bob: inbox is full
role message "m2" was not delivered to role reviewer
dropped what arrived on "cotal.lab.epe.delivery.one.1.receipt.local.ada": malformed-json
role message "m2" was not delivered to role reviewer
role message "m2" was not delivered to role reviewer`
		for i, line := range strings.Split(want, "\n") {
			if i >= len(got) || !strings.HasPrefix(got[i], line) || len(got) != 5 {
				t.Fatalf("events:\n%s\nwant:\n%s", strings.Join(got, "\n"), want)
			}
		}
		if n := len(bobs.list()); n != 0 {
			t.Errorf("somebody else was told %v", bobs.list())
		}
	})
}

// A credential without the right to notices works, and nothing is said about it.
func TestNoRightToNotices(t *testing.T) {
	users := func(o *server.Options) {
		deny := &server.SubjectPermission{Deny: []string{"cotal.lab.epe.delivery.*.*.receipt.>"}}
		o.Users = []*server.User{{Username: "all", Password: "x"}, {Username: "less", Password: "x", Permissions: &server.Permissions{Subscribe: deny}}}
		o.NoAuthUser = "all"
	}
	w := newOpenWorld(t, users)
	events, got := newJournal[endpoint.Event](), newJournal[*endpoint.Delivery]()
	ep := w.connect("ada", &endpoint.Options{OnEvent: events.add, Open: &endpoint.Open{User: "less", Password: "x"}})
	must(ep.Listen(t.Context(), "team", got.add))(t)
	must(ep.Post(t.Context(), "team", endpoint.Text("x")))(t)
	got.waitLen(t, 1)
	check(t, "close", ep.Close(), nil)
	if all := events.list(); len(all) != 0 {
		t.Errorf("events %v, want none", all)
	}
}

func TestReceiptCommands(t *testing.T) {
	w := newOpenWorld(t)
	w.unserve()
	w.serve(nil, func(s *control.Service) {
		answer := func(what string) func(context.Context, *control.Request, wire.ReceiptRequest) (wire.ReceiptReply, error) {
			return func(_ context.Context, _ *control.Request, in wire.ReceiptRequest) (wire.ReceiptReply, error) {
				return wire.ReceiptReply{ID: in.ID, Kind: what, Stage: wire.StageHandled, Recipients: []wire.RecipientReceipt{}}, nil
			}
		}
		control.Handle(s, control.Command{Name: wire.CommandReceipt, Effect: control.Read}, answer("receipt"))
		control.Handle(s, control.Command{Name: wire.CommandTrace, Effect: control.Read}, answer("trace"))
		control.Handle(s, control.Command{Name: wire.CommandReach, Effect: control.Read},
			func(_ context.Context, _ *control.Request, in wire.ReachRequest) (wire.ReachReply, error) {
				return wire.ReachReply{Tier: wire.ReachStored, Reason: in.Role}, nil
			})
		control.Handle(s, control.Command{Name: wire.CommandInbox, Effect: control.Read},
			func(_ context.Context, _ *control.Request, in wire.InboxRequest) (wire.InboxReply, error) {
				return wire.InboxReply{Principal: in.Principal, Waiting: 3, Messages: []wire.InboxMessage{}}, nil
			})
	})
	ep := w.connect("ada", nil)
	if r, err := ep.Receipt(t.Context(), wire.ReceiptRequest{ID: "m"}); err != nil || r.ID != "m" || r.Kind != "receipt" || r.Stage != wire.StageHandled {
		t.Errorf("receipt %+v, %v", r, err)
	}
	if r, err := ep.Trace(t.Context(), wire.TraceRequest{ID: "m"}); err != nil || r.Kind != "trace" {
		t.Errorf("trace %+v, %v", r, err)
	}
	if r, err := ep.Reach(t.Context(), wire.ReachRequest{Role: "reviewer"}); err != nil || r.Tier != wire.ReachStored || r.Reason != "reviewer" {
		t.Errorf("reach %+v, %v", r, err)
	}
	if r, err := ep.Inbox(t.Context(), wire.InboxRequest{Principal: "local.bob"}); err != nil || r.Waiting != 3 || r.Principal != "local.bob" {
		t.Errorf("inbox %+v, %v", r, err)
	}
}

// What the broker has not confirmed, only the sender's own client knows about.
func TestReceiptOfAnUnconfirmedMessage(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ep, process := w.mortal(endpoint.Static(w.user("ada")), endpoint.Options{})
		process.kill()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		sent := make(chan error, 1)
		go func() {
			_, err := ep.Ask(ctx, "reviewer", endpoint.Draft{ID: "m", Parts: []wire.Part{wire.Text("x")}})
			sent <- err
		}()
		synctest.Wait()
		r, err := ep.Receipt(ctx, wire.ReceiptRequest{ID: "m"})
		if err != nil || r.Stage != wire.StageAccepted || r.Kind != "role" || r.Role != "reviewer" || r.Sender != "local.ada" || r.ID != "m" {
			t.Errorf("receipt %+v, %v", r, err)
		}
		if err := <-sent; err == nil {
			t.Error("sent without a broker")
		}
		if _, err := ep.Receipt(t.Context(), wire.ReceiptRequest{ID: "m"}); err == nil {
			t.Error("a receipt after sending was given up")
		}
	})
}
