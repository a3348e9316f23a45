package person

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// errQuit ends a session at the person's wish.
var errQuit = errors.New("quit")

// session is one person in one space.
type session struct {
	t       *target.Target
	ep      *endpoint.Endpoint
	current string   // channel of plain text; used by the loop alone
	members []member // in the order they were joined; used by the loop alone
	refused int      // lines that were not done; used by the loop alone
	first   error    // why the first of them was not

	wg     sync.WaitGroup // counts the session's own goroutines
	broken chan struct{}  // closed when the output is gone

	mu     sync.Mutex // guards the fields below and the output
	calm   view.Calm
	screen *screen // set once, before anything but events is received
	over   bool    // nothing is printed any more
	err    error
	peers  map[string]target.Peer  // as last told by the roster
	missed map[string]int          // how many messages that had been missed were shown, by pattern, "" for mentions
	late   map[string][]view.Entry // history that comes after what was missed, by channel
	said   recent                  // what was posted here
}

// attach makes the screen the session's.
func (s *session) attach(sc *screen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.screen = sc
}

// leave ends all output and gives the terminal back.
func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.screen.restore()
}

// begin shows where the person is and starts to listen.
func (s *session) begin(ctx context.Context, patterns []string, current string, history int) error {
	s.current = current
	s.say("you are %s in space %s; /help lists the commands", s.ep.Principal(), s.ep.Space())
	before := s.memberships(ctx)
	for _, p := range patterns {
		n := 0
		if p == current {
			n = history
		}
		if err := s.join(ctx, p, n, before[p]); err != nil {
			return err
		}
	}
	if err := s.ep.HandleDirect(ctx, func(d *endpoint.Delivery) { s.settle(ctx, d, "") }); err != nil {
		return err
	}
	if err := s.ep.HandleMentions(ctx, func(d *endpoint.Delivery) { s.show(d, "") }); err != nil {
		return err
	}
	if s.ep.Identity().Role != "" {
		if err := s.ep.HandleRole(ctx, func(d *endpoint.Delivery) { s.settle(ctx, d, "") }); err != nil {
			return err
		}
	}
	s.watch(ctx)
	return nil
}

// posts reports whether the credential may post to the channels of a pattern.
func (s *session) posts(pattern string) bool {
	id := s.ep.Identity()
	return id.Profile == trust.Operator || wire.PatternsCover(id.Publish, pattern)
}

func (s *session) print(v any, human func(*command.Printer)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.over {
		return false
	}
	if s.err = s.screen.env.Each(v, human); s.err != nil {
		close(s.broken)
		return false
	}
	return true
}

func (s *session) outputError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *session) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.screen.note(format, args...)
	}
}

// watch tells who comes and goes.
func (s *session) watch(ctx context.Context) {
	s.wg.Go(func() {
		err := s.ep.WatchRoster(ctx, s.roster) // ends with ctx or the endpoint
		if err != nil && !errors.Is(err, endpoint.ErrClosed) {
			s.say("who comes and goes is not shown: %s", command.Safe(err.Error()))
		}
	})
}

func (s *session) roster(u endpoint.RosterUpdate) {
	if u.Snapshot {
		s.mu.Lock()
		s.peers = map[string]target.Peer{}
		s.mu.Unlock()
	}
	for _, en := range u.Entries {
		s.arrival(target.PeerOf(en), u.Snapshot)
	}
	for _, id := range u.Removed {
		s.mu.Lock()
		delete(s.peers, id)
		s.mu.Unlock()
	}
}

// arrival keeps track of one peer and tells of a change that a person would notice: coming, going, waiting for
// somebody, saying what it does.
func (s *session) arrival(p target.Peer, quiet bool) {
	s.mu.Lock()
	was := s.peers[p.Principal]
	s.peers[p.Principal] = p
	s.mu.Unlock()
	before := was.Principal != "" && was.Here()
	switch {
	case quiet || p.Principal == s.ep.Principal().String():
	case p.Here() && !before:
		s.say("%s is here", p.Principal)
	case !p.Here() && before:
		s.say("%s is gone", p.Principal)
	case p.Here() && (p.Status != was.Status || p.Activity != was.Activity) && (p.Activity != "" || p.Status == string(wire.StatusWaiting)):
		s.say("%s is %s", p.Principal, command.Safe(doing(p.Status, p.Activity)))
	}
}

// doing is what a peer says it does, as one phrase.
func doing(status, activity string) string {
	if activity == "" {
		return status
	}
	return status + ": " + activity
}

// event tells what happens to the connection. It is called before the screen is there, too.
func (s *session) event(ev endpoint.Event) {
	s.mu.Lock()
	early := s.screen == nil
	s.mu.Unlock()
	if early {
		return
	}
	if c, ok := ev.(endpoint.EventCaughtUp); ok {
		ev = s.counted(c)
	}
	if view.EventName(ev) == "" {
		return
	}
	if s.screen.env.JSON {
		s.print(view.NoticeOf(ev), nil)
		return
	}
	s.mu.Lock()
	text := s.calm.Spoken(ev)
	s.mu.Unlock()
	if text != "" {
		s.say("%s", command.Safe(text))
	}
}

// outcome is the error of the whole session: a script learns from the exit code that a line of it was not done, a
// person has seen it.
func (s *session) outcome() error {
	if s.first == nil || s.screen.interactive {
		return nil
	}
	if s.refused == 1 {
		return fmt.Errorf("one line was refused: %w", s.first)
	}
	return fmt.Errorf("%d lines were refused, the first: %w", s.refused, s.first)
}

func (s *session) showPrompt() {
	if s.current == "" {
		s.screen.prompt("> ")
		return
	}
	s.screen.prompt("#" + s.current + "> ")
}

// refuse says why a line was not done.
func (s *session) refuse(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	err = s.t.Explain(err)
	if s.refused++; s.first == nil {
		s.first = err
	}
	f := command.FailureOf(err)
	f.Error.Hints = inside(err)
	if s.screen.env.JSON {
		s.print(f, nil)
		return
	}
	s.say("%s", command.Safe(err.Error()))
	for _, h := range f.Error.Hints {
		s.say("hint: %s", command.Safe(h))
	}
}

// inside are the hints of an error that help in a session: commands of the program are for outside of it.
func inside(err error) []string {
	var out []string
	for _, h := range command.Hints(err) {
		if strings.Contains(h, "cotal serve delivery") || !strings.Contains(h, "cotal ") && !strings.Contains(h, "--") {
			out = append(out, h)
		}
	}
	return out
}

// do carries out one line.
func (s *session) do(ctx context.Context, a action) error {
	switch a.verb {
	case verbNone:
		return nil
	case verbQuit:
		return errQuit
	case verbHelp:
		s.say("%s", help)
		return nil
	case verbWho:
		return s.who(ctx)
	case verbChannels:
		return s.channels(ctx)
	case verbStatus:
		if err := s.ep.SetStatus(ctx, wire.Status(a.to), a.text); err != nil {
			return err
		}
		s.say("you are %s", command.Safe(doing(a.to, a.text)))
		return nil
	case verbChannel:
		if err := s.join(ctx, a.to, 0, false); err != nil {
			return err
		}
		s.current = a.to
		return nil
	case verbLeave:
		return s.part(ctx, a.to)
	}
	return s.send(ctx, a)
}

func (s *session) send(ctx context.Context, a action) error {
	draft := endpoint.Text(a.text)
	draft.Mentions = view.Mentions(a.text, nil)
	switch a.verb {
	case verbDirect:
		peer, reach, err := s.t.ReachPeer(ctx, s.ep, a.to)
		if errors.Is(err, wire.ErrNotFound) {
			return command.Hint(err, "who is here: /who")
		}
		if err != nil {
			return err
		}
		r, err := s.ep.Direct(ctx, peer.ID(), draft)
		if err != nil {
			return err
		}
		s.receipt(r, view.KindDirect, peer.Principal, reach, view.ToPeer(peer, reach))
		return nil
	case verbAsk:
		reach := target.Reach(ctx, s.ep, wire.ReachRequest{Role: a.to})
		r, err := s.ep.Ask(ctx, a.to, draft)
		if err != nil {
			return err
		}
		s.receipt(r, view.KindRole, a.to, reach, view.ToRole(a.to, reach))
		return nil
	}
	if s.current == "" {
		return command.Usagef("no current channel; choose one with /channel <name>")
	}
	draft.ID = wire.NewID() // known before it comes back
	s.mu.Lock()
	s.said.add(draft.ID)
	s.mu.Unlock()
	r, err := s.ep.Post(ctx, s.current, draft)
	if err != nil {
		return err
	}
	s.receipt(r, view.KindChannel, s.current, wire.ReachReply{}, "")
	return nil
}

// Receipt is what a sent line prints with --json.
type Receipt struct {
	command.V
	Sent     string `json:"sent"` // id of the message
	Kind     string `json:"kind"`
	To       string `json:"to"`
	Sequence uint64 `json:"sequence"`
	// Tier is as in `cotal send --json`; absent for a channel, which is not asked about for each line.
	Tier string `json:"tier,omitempty"`
}

// receipt says what is known about a sent line: where the broker stored it, and who is there.
func (s *session) receipt(r endpoint.Receipt, kind, to string, reach wire.ReachReply, outlook string) {
	if s.screen.env.JSON {
		s.print(Receipt{V: command.V1, Sent: r.ID, Kind: kind, To: to, Sequence: r.Sequence, Tier: reach.Tier}, nil)
		return
	}
	mark := ""
	if kind == view.KindChannel {
		mark = "#"
	}
	if outlook != "" {
		outlook = "; " + outlook
	}
	s.say("→ %s%s stored seq %s%s", mark, command.Safe(to), strconv.FormatUint(r.Sequence, 10), outlook)
}

// Who is what /who prints with --json.
type Who struct {
	command.V
	Present []target.Peer `json:"present"`
}

func (s *session) who(ctx context.Context) error {
	peers, since, err := target.Roster(ctx, s.ep, false)
	if err != nil {
		return err
	}
	s.print(Who{V: command.V1, Present: peers}, func(p *command.Printer) {
		rows := make([][]string, len(peers))
		for i, m := range peers {
			rows[i] = []string{m.Principal, m.Status, m.Role, m.Activity}
		}
		p.Table([]string{"principal", "status", "role", "activity"}, rows)
	})
	if !since.IsZero() {
		s.say("as of %s: delivery has lost sight of the space since", since.Local().Format("15:04:05"))
	}
	return nil
}

// Channels is what /channels prints with --json.
type Channels struct {
	command.V
	Channels []wire.ChannelInfo `json:"channels"`
}

func (s *session) channels(ctx context.Context) error {
	list, err := s.ep.Channels(ctx)
	if err != nil {
		return err
	}
	s.print(Channels{V: command.V1, Channels: list.Channels}, func(p *command.Printer) {
		for _, c := range list.Channels {
			description := ""
			if c.Config != nil {
				description = c.Config.Description
			}
			p.Line("#%s  %s", command.Safe(c.Channel), command.Safe(description))
		}
	})
	return nil
}
