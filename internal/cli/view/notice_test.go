package view_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/wire"
)

// A program is told of a loss in fields, a person in a phrase that claims no more than is known.
func TestNoticeOfALoss(t *testing.T) {
	for _, tt := range []struct {
		ev   endpoint.Event
		want view.Notice
	}{
		{endpoint.EventLoss{Pattern: "team.>", Channel: "team.a", From: 3, To: 9, Reason: wire.LossCleared, Count: 6}, view.Notice{
			Event: "loss", Text: "6 messages of #team.a were cleared before you read them", Channel: "team.a", Count: 6, From: 3, To: 9, Reason: "cleared",
		}},
		{endpoint.EventLoss{Pattern: "team", Channel: "team", From: 3, To: 3, Reason: wire.LossCleared, Count: 1}, view.Notice{
			Event: "loss", Text: "1 message of #team was cleared before you read it", Channel: "team", Count: 1, From: 3, To: 3, Reason: "cleared",
		}},
		{endpoint.EventLoss{Pattern: "team", Channel: "team", From: 3, To: 9, Reason: wire.LossCleared, Count: 6, AtMost: true}, view.Notice{
			Event: "loss", Text: "up to 6 messages of #team were cleared before you read them", Channel: "team", Count: 6, AtMost: true, From: 3, To: 9,
			Reason: "cleared",
		}},
		{endpoint.EventLoss{Pattern: "team", From: 3, To: 9, Reason: wire.LossRetention}, view.Notice{
			Event: "loss", Text: "messages of #team between sequence 3 and 9 may have been removed for age or room before you read them", Channel: "team",
			From: 3, To: 9, Reason: "retention",
		}},
		{endpoint.EventLoss{Channel: "team", From: 3, To: 9, Reason: wire.LossCleared, Count: 2}, view.Notice{
			Event: "loss", Text: "2 mentions of #team were cleared before you read them", Channel: "team", Count: 2, From: 3, To: 9, Reason: "cleared",
		}},
		{endpoint.EventLoss{Reason: wire.LossRetention}, view.Notice{
			Event: "loss", Text: "mentions may have been removed for age or room before you read them", Reason: "retention",
		}},
		{endpoint.EventCaughtUp{Count: 1}, view.Notice{Event: "caught-up", Text: "1 mention was missed and is shown", Count: 1}},
		{endpoint.EventCaughtUp{Pattern: "team", Count: 2}, view.Notice{
			Event: "caught-up", Text: "2 messages of #team were missed and are shown", Channel: "team", Count: 2,
		}},
	} {
		tt.want.V = command.V1
		if diff := cmp.Diff(tt.want, view.NoticeOf(tt.ev)); diff != "" {
			t.Errorf("notice of %v (-want +got):\n%s", tt.ev, diff)
		}
	}
}
