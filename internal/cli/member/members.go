// Package member holds the commands about who is a member of which channel: members, leave.
//
// A member of a durable channel gets everything that is posted while it is one, also what is posted while it is away.
// cotal join makes a member; ending a session does not end the membership, leaving does.
package member

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/wire"
)

const membersLong = `
Lists who is a member of which channels, as far as you may read them: of all, or of the one that is named. The list is for
display and may be a second or two old.

  there     connected, and a member that would miss nothing if it were not
  away      not connected; gets what is posted now when it comes back
  live      connected, and gets nothing of what is posted while it is not
  left      no longer a member, and has not read all of the time when it was
`

const membersExample = `
  cotal members
  cotal members general --json
`

// members lists memberships.
type members struct {
	channel string
}

// NewMembers adds `cotal members`.
func NewMembers(t *command.Tree) *cobra.Command {
	m := &members{}
	return t.Add(command.Spec{
		Use: "members [channel] [flags]", Short: "List who is a member of which channels", Long: membersLong, Example: membersExample,
		Args: command.Maybe("channel", &m.channel), Target: command.TargetPerson, Complete: command.First(target.CompleteChannels),
	}, m)
}

// MembersResult is what `cotal members --json` prints.
type MembersResult struct {
	command.V
	Space   wire.Space `json:"space"`
	Channel string     `json:"channel,omitempty"`
	Members []Member   `json:"members"`
	// LiveAt is when the broker's connections were last looked at; absent when they could not be.
	LiveAt time.Time `json:"liveAt,omitzero"`

	part bool // members of channels that who asks may not read are left out
}

// Member is one member with what it is of each of its patterns: there, away, live, left; durable when nobody knows whether it
// is connected.
type Member struct {
	wire.MemberInfo
	Is map[string]string `json:"is"`
}

// Run lists, page by page.
func (m *members) Run(ctx context.Context, e *command.Env) error {
	req := wire.MembershipsRequest{Channel: strings.TrimPrefix(m.channel, "#")}
	if req.Channel != "" {
		if err := wire.ValidateChannel(req.Channel); err != nil {
			return err
		}
	}
	t, ep, leave, err := target.Enter(ctx, e, target.Looking)
	if err != nil {
		return err
	}
	defer leave()
	all, at, err := target.Memberships(ctx, ep, req)
	if err != nil {
		return t.Explain(err)
	}
	res := MembersResult{V: command.V1, Space: ep.Space(), Channel: req.Channel, Members: make([]Member, len(all)), LiveAt: at, part: target.SeesPart(ep.Identity())}
	for i, m := range all {
		res.Members[i] = Member{MemberInfo: m, Is: standing(m, !at.IsZero())}
	}
	if err := e.Print(res, res.human); err != nil {
		return err
	}
	if hint := t.Unlisted(); res.part && hint != "" && req.Channel == "" {
		e.Note("hint: %s", hint)
	}
	if len(all) == 0 && req.Channel != "" && !e.JSON {
		target.NoteUnknown(ctx, e, ep, req.Channel)
	}
	return nil
}

func (r MembersResult) human(p *command.Printer) {
	var rows [][]string
	for _, m := range r.Members {
		for _, pattern := range slices.Sorted(maps.Keys(m.Is)) {
			rows = append(rows, []string{m.Principal, view.Channel(pattern), m.Is[pattern]})
		}
	}
	switch {
	case len(rows) > 0:
		p.Table([]string{"principal", "channel", "is"}, rows)
	case r.Channel != "":
		p.Line("nobody is a member of #%s in space %s", command.Safe(r.Channel), r.Space)
	case r.part:
		p.Line("nobody is a member of a channel in space %s whose history you may read", r.Space)
	default:
		p.Line("nobody is a member of a channel in space %s", r.Space)
	}
	if r.LiveAt.IsZero() {
		p.Line("who is connected at the moment is not known")
	}
}

// standing is what a member is of each of its patterns.
func standing(m wire.MemberInfo, known bool) map[string]string {
	is := map[string]string{}
	for _, pattern := range m.Live {
		is[pattern] = "live"
	}
	for _, d := range m.Durable {
		switch there := slices.Contains(m.Live, d.Pattern); {
		case d.Left > 0 && there: // it came back, and is listened to
		case d.Left > 0:
			is[d.Pattern] = "left"
		case known && there:
			is[d.Pattern] = "there"
		case known:
			is[d.Pattern] = "away"
		default:
			is[d.Pattern] = "durable"
		}
	}
	return is
}
