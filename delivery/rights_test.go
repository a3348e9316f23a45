package delivery_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// The same service behind real credentials: what it may read is enough for it, and the broker refuses what it does not
// check itself.
func TestWithRealCredentials(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	ada := m.Endpoint(t, "ada", &cotaltest.Peer{Subscribe: []string{"general"}})
	boss := m.Endpoint(t, "boss", &cotaltest.Peer{Request: &auth.Request{Profile: trust.Operator, Subscribe: []string{">"}, Publish: []string{">"}}})
	ctx := ctxFor(t)
	for _, ch := range []string{"general", "secret"} {
		if _, err := boss.Post(ctx, ch, endpoint.Draft{Parts: []wire.Part{wire.Text("hello " + ch)}}); err != nil {
			t.Fatal(err)
		}
	}
	call := func(e *endpoint.Endpoint, command string, args, out any) error {
		return e.Call(ctx, control.Target{Endpoint: wire.DeliveryEndpoint, Command: command}, args, out)
	}
	var page wire.HistoryReply
	if err := call(ada, wire.CommandHistory, wire.HistoryRequest{Channel: "general"}, &page); err != nil || len(page.Messages) != 1 || page.Messages[0].Sender != "local.boss" {
		t.Errorf("history of general = %+v, %v, want the one message of boss", page, err)
	}
	for _, in := range []wire.HistoryRequest{{Channel: "general", Last: 5}, {Channel: "general", Replay: true}, {Channel: "general", Since: 1}} {
		if err := call(ada, wire.CommandHistory, in, &page); err != nil || len(page.Messages) != 1 {
			t.Errorf("history %+v = %d messages, %v, want 1", in, len(page.Messages), err)
		}
	}
	if err := call(ada, wire.CommandHistory, wire.HistoryRequest{Channel: "secret"}, &page); !errors.Is(err, wire.ErrPermissionDenied) {
		t.Errorf("history of secret = %v, want permission-denied", err)
	}
	set := wire.ChannelSetRequest{Channel: "general", Config: &wire.ChannelConfig{Description: "all"}, Revision: space.Revision(0)}
	if err := call(ada, wire.CommandChannelSet, set, nil); !errors.Is(err, wire.ErrPermissionDenied) {
		t.Errorf("channel-set by an agent = %v, want permission-denied", err)
	}
	var done wire.ChannelSetReply
	if err := call(boss, wire.CommandChannelSet, set, &done); err != nil || done.Revision == 0 {
		t.Errorf("channel-set by an operator = %+v, %v", done, err)
	}
	var channels wire.ChannelsReply
	if err := call(ada, wire.CommandChannels, nil, &channels); err != nil || len(channels.Channels) != 1 {
		t.Errorf("channels of ada = %+v, %v, want general alone", channels, err)
	}
	if err := call(boss, wire.CommandChannels, nil, &channels); err != nil || len(channels.Channels) != 2 {
		t.Errorf("channels of boss = %+v, %v, want both", channels, err)
	}
	var roster wire.RosterReply
	if err := call(ada, wire.CommandRoster, nil, &roster); err != nil || fmt.Sprint(principals(roster)) != "[local.ada local.boss]" {
		t.Errorf("roster = %v, %v, want ada and boss", principals(roster), err)
	}
	if err := call(ada, wire.CommandEnrol, wire.EnrolRequest{}, nil); !errors.Is(err, wire.ErrPermissionDenied) {
		t.Errorf("enrol = %v, want permission-denied", err)
	}
}

func principals(r wire.RosterReply) []string {
	var out []string
	for _, e := range r.Entries {
		out = append(out, e.Principal)
	}
	return out
}
