// Package channel holds the commands that look at and change a space's channels: channels list, channels set.
//
// A channel exists as soon as somebody posts to it; these commands show and change its settings. Who may read or post
// is not a setting but a matter of grants.
package channel

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const groupLong = `
Shows the channels of a space and changes their settings. Settings say how a channel is delivered and described; who
may read or post is decided by grants (cotal mint).
`

// New adds `cotal channels`.
func New(t *command.Tree) *cobra.Command {
	return t.Group("channels", "List channels and change their settings", groupLong, newList(t), newSet(t))
}

const listLong = `
Lists the channels that have settings, and those that hold messages and that you may read, with what applies to each and how
many members it has. Delivery durable means that members who are away get what is posted meanwhile when they come back, live
that they do not. Who the members are: cotal members.
`

const listExample = `
  cotal channels list
  cotal channels list --space lab --json
`

type list struct{}

func newList(t *command.Tree) *cobra.Command {
	return t.Add(command.Spec{Use: "list [flags]", Short: "List the channels of the space", Long: listLong, Example: listExample, Target: command.TargetPerson}, list{})
}

// ListResult is what `cotal channels list --json` prints.
type ListResult struct {
	command.V
	Space    wire.Space         `json:"space"`
	Defaults wire.ChannelConfig `json:"defaults"`
	Channels []Line             `json:"channels"`

	profile trust.Profile // of a credential that takes no part
	part    bool          // channels may be left out
}

// Line is one channel. Members counts who is a member of it, there or away; absent when nobody could say.
type Line struct {
	wire.ChannelInfo
	Members *int `json:"members,omitempty"`
}

// Run lists, page by page.
func (list) Run(ctx context.Context, e *command.Env) error {
	t, ep, leave, err := target.Enter(ctx, e, target.Looking)
	if err != nil {
		return err
	}
	defer leave()
	all, err := ep.Channels(ctx)
	if err != nil {
		return t.Explain(err)
	}
	members, known := memberships(ctx, ep)
	res := ListResult{V: command.V1, Space: ep.Space(), Defaults: all.Defaults, Channels: []Line{}, profile: t.Apart(), part: target.SeesPart(ep.Identity())}
	for _, c := range all.Channels {
		l := Line{ChannelInfo: c}
		l.Writable = l.Writable || res.profile == trust.Operator
		if known && c.Readable {
			n := count(members, c.Channel)
			l.Members = &n
		}
		res.Channels = append(res.Channels, l)
	}
	if err := e.Print(res, res.human); err != nil {
		return err
	}
	if hint := t.Unlisted(); res.part && hint != "" {
		e.Note("hint: %s", hint)
	}
	return nil
}

// memberships is who is a member of what. The list is shown without it when nobody can say.
func memberships(ctx context.Context, ep *endpoint.Endpoint) ([]wire.MemberInfo, bool) {
	ctx, cancel := context.WithTimeout(ctx, target.AnswerWithin)
	defer cancel()
	all, _, err := target.Memberships(ctx, ep, wire.MembershipsRequest{})
	return all, err == nil
}

// count counts the members of a channel: who listens to it, and whose membership of it is open.
func count(members []wire.MemberInfo, channel string) int {
	n := 0
	for _, m := range members {
		covers := func(pattern string) bool { return wire.PatternCovers(pattern, channel) }
		if slices.ContainsFunc(m.Live, covers) || slices.ContainsFunc(m.Durable, func(d wire.DurableMembership) bool { return d.Left == 0 && covers(d.Pattern) }) {
			n++
		}
	}
	return n
}

func (r ListResult) human(p *command.Printer) {
	if len(r.Channels) == 0 {
		p.Line("%s", r.none())
		return
	}
	rows := make([][]string, len(r.Channels))
	for i, c := range r.Channels {
		messages, members, description := "-", "-", ""
		if c.Members != nil {
			members = strconv.Itoa(*c.Members)
		}
		if c.Messages != nil {
			messages = strconv.FormatUint(*c.Messages, 10)
		}
		if c.Config != nil {
			description = c.Config.Description
		}
		rows[i] = []string{"#" + c.Channel, c.DeliveryClass, replay(c.Replay, c.ReplayWindowMS), messages, members, r.rights(c.ChannelInfo), description}
	}
	p.Table([]string{"channel", "delivery", "replay", "messages", "members", "you", "description"}, rows)
}

func replay(on bool, windowMS int64) string {
	switch {
	case !on:
		return "off"
	case windowMS == 0:
		return "all"
	}
	return command.Duration(time.Duration(windowMS) * time.Millisecond)
}

// none says why no channel is listed.
func (r ListResult) none() string {
	if r.part {
		return fmt.Sprintf("no channels in space %s that have settings or whose history you may read", r.Space)
	}
	return fmt.Sprintf("no channels in space %s yet; post to one: cotal send msg <channel> <text>", r.Space)
}

// rights is what whoever asks may do in a channel. To hear it is to get what is said as it comes.
func (r ListResult) rights(c wire.ChannelInfo) string {
	var may []string
	if r.profile == trust.Observer || r.profile == trust.Admin {
		may = append(may, "hear")
	}
	if c.Readable {
		may = append(may, "read")
	}
	if c.Writable {
		may = append(may, "post")
	}
	if len(may) == 0 {
		return "neither"
	}
	return strings.Join(may, ", ")
}

const setLong = `
Changes the settings of a channel; what is not named stays as it is. With --defaults instead of a channel the settings
of all channels that say nothing themselves are changed. --clear removes the channel's own settings; its messages stay.

The change is refused with exit code 5 when somebody else changed the settings in between.

Delivery durable keeps what is posted for members who are away, and gives it to them when they come back; live gives it to
those who are there, at most once. Whoever joined while the channel was live has to join again to be kept for.
`

const setExample = `
  cotal channels set team.backend --description "service code" --delivery durable
  cotal channels set --defaults --replay-window 7d
`

type set struct {
	channel  string
	defaults bool
	clear    bool

	replay       bool
	window       string
	delivery     string
	description  string
	instructions string
	changed      func(flag string) bool
}

func newSet(t *command.Tree) *cobra.Command {
	s := &set{}
	c := t.Add(command.Spec{
		Use: "set [channel] [flags]", Short: "Change the settings of a channel", Long: setLong, Example: setExample,
		Args: command.Maybe("channel", &s.channel), Target: command.TargetPerson, Changes: true,
		Complete: command.First(target.CompleteChannels),
	}, s)
	f := c.Flags()
	s.changed = f.Changed
	f.BoolVar(&s.defaults, "defaults", false, "change the space's defaults instead of one channel")
	f.BoolVar(&s.clear, "clear", false, "remove the channel's own settings")
	f.BoolVar(&s.replay, "replay", true, "show history to those who join")
	f.StringVar(&s.window, "replay-window", "", "how far back, such as 30m, 12h or 7d")
	f.StringVar(&s.delivery, "delivery", "", "live (at most once, to who is connected) or durable (also to members who were away)")
	f.StringVar(&s.description, "description", "", "what the channel is for, at most 200 characters")
	f.StringVar(&s.instructions, "instructions", "", "advice to those who join, at most 2,000 characters")
	_ = c.RegisterFlagCompletionFunc("delivery", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{string(wire.ClassLive), string(wire.ClassDurable)}, cobra.ShellCompDirectiveNoFileComp
	})
	return c
}

// SetResult is what `cotal channels set --json` prints.
type SetResult struct {
	command.V
	Space wire.Space `json:"space"`
	wire.ChannelSetReply
}

// Run reads, changes and writes, all against one revision.
func (s *set) Run(ctx context.Context, e *command.Env) error {
	key, err := s.key()
	if err != nil {
		return err
	}
	t, ep, leave, err := target.Enter(ctx, e, target.Configuring)
	if err != nil {
		return err
	}
	defer leave()
	req, err := s.request(ctx, ep, key)
	if err != nil {
		return t.Explain(err)
	}
	meant := ""
	if !s.defaults && !s.clear && !e.JSON {
		meant = target.Mistyped(ctx, ep, key) // asked before: then it is there
	}
	reply, err := target.SetChannel(ctx, ep, req)
	if err != nil {
		return t.Explain(err)
	}
	res := SetResult{V: command.V1, Space: ep.Space(), ChannelSetReply: reply}
	err = e.Print(res, func(p *command.Printer) {
		name := "#" + command.Safe(reply.Channel)
		if s.defaults {
			name = "defaults of space " + string(res.Space)
		}
		p.Line("%s: delivery %s, replay %s", p.Bold(name), reply.DeliveryClass, replay(reply.Replay, reply.ReplayWindowMS))
	})
	if err == nil && meant != "" {
		e.Note("hint: %s", meant)
	}
	return err
}

var settings = []string{"replay", "replay-window", "delivery", "description", "instructions"}

func (s *set) key() (string, error) {
	if s.defaults == (s.channel != "") {
		return "", command.Usagef("want a channel or --defaults, one of them")
	}
	any := false
	for _, f := range settings {
		any = any || s.changed(f)
	}
	switch {
	case s.clear && (any || s.defaults):
		return "", command.Usagef("--clear goes with a channel alone")
	case !s.clear && !any:
		return "", command.Hint(command.Usagef("nothing to change"), "name one of: --"+strings.Join(settings, ", --")+", --clear")
	case s.defaults:
		return wire.DefaultsKey, nil
	}
	name := strings.TrimPrefix(s.channel, "#")
	return name, wire.ValidateChannel(name)
}

// request is the change on top of what is there now.
func (s *set) request(ctx context.Context, ep *endpoint.Endpoint, key string) (wire.ChannelSetRequest, error) {
	req := wire.ChannelSetRequest{Channel: key}
	have, rev, err := target.ChannelConfig(ctx, ep, key)
	if err != nil {
		return req, err
	}
	if key != wire.DefaultsKey {
		req.Revision = &rev
	}
	if s.clear {
		return req, nil
	}
	cfg := have
	if s.changed("replay") {
		on := s.replay
		cfg.Replay = &on
	}
	for flag, field := range map[string]struct{ to, from *string }{
		"replay-window": {&cfg.ReplayWindow, &s.window}, "delivery": {&cfg.DeliveryClass, &s.delivery},
		"description": {&cfg.Description, &s.description}, "instructions": {&cfg.Instructions, &s.instructions},
	} {
		if s.changed(flag) {
			*field.to = *field.from
		}
	}
	if err := cfg.Validate(); err != nil {
		return req, err
	}
	req.Config = &cfg
	return req, nil
}
