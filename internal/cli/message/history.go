package message

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/wire"
)

const historyLong = `
Prints stored messages of a channel, oldest first: the last 50, or as --last, --since or --from say. With --all every
page up to the present end is read; otherwise one page, and a note how to go on when there is more. --limit alone is
the same as --last.

Each message is shown with its sender and time as the broker recorded them.
`

const historyExample = `
  cotal history general
  cotal history team.backend --since 2h
  cotal history general --from 1200 --all --json
`

const readExample = `
  cotal read general
  cotal read general --last 5
`

// defaultLast is how many messages are read when nothing else is asked.
const defaultLast = 50

// history prints stored messages.
type history struct {
	verb    string // as it was called
	channel string
	last    int
	lastSet bool
	since   string
	from    uint64
	limit   int
	all     bool
}

// NewHistory adds `cotal history` and, below it, `cotal history clear`.
func NewHistory(t *command.Tree) *cobra.Command {
	c := newHistory(t, command.Spec{
		Use: "history <channel> [flags]", Short: "Print stored messages of a channel", Long: historyLong, Example: historyExample,
	}, "history")
	c.AddCommand(newClear(t))
	return c
}

// NewRead adds `cotal read`, the same as `cotal history`.
func NewRead(t *command.Tree) *cobra.Command {
	return newHistory(t, command.Spec{
		Use: "read <channel> [flags]", Short: "Print stored messages of a channel, the same as history", Long: historyLong, Example: readExample,
	}, "read")
}

func newHistory(t *command.Tree, spec command.Spec, verb string) *cobra.Command {
	h := &history{verb: verb}
	spec.Args, spec.Target, spec.Complete = command.One("channel", &h.channel), command.TargetPerson, command.First(target.CompleteChannels)
	c := t.Add(spec, h)
	f := c.Flags()
	f.IntVar(&h.last, "last", 0, "the last n messages (default 50)")
	c.PreRun = func(c *cobra.Command, _ []string) { h.lastSet = c.Flags().Changed("last") }
	f.StringVar(&h.since, "since", "", "messages stored since then: a duration (2h, 3d) or a time (2006-01-02T15:04:05Z)")
	f.Uint64Var(&h.from, "from", 0, "messages from this stream sequence on")
	f.IntVar(&h.limit, "limit", 0, "most messages of one page")
	f.BoolVar(&h.all, "all", false, "every page up to the end")
	return c
}

// PageEnd is the last line of `cotal history --json`.
type PageEnd struct {
	command.V
	End       bool   `json:"end"`
	Channel   string `json:"channel"`
	Count     int    `json:"count"`
	Next      uint64 `json:"next,omitempty"` // for --from; absent when nothing followed
	Remaining uint64 `json:"remaining"`
	Skipped   int    `json:"skipped,omitempty"` // stored messages that do not keep to the contract
}

// Run reads page by page.
func (h *history) Run(ctx context.Context, e *command.Env) error {
	req, err := h.request(time.Now())
	if err != nil {
		return err
	}
	t, ep, leave, err := target.Enter(ctx, e, target.Looking)
	if err != nil {
		return err
	}
	defer leave()
	end := PageEnd{V: command.V1, End: true, Channel: req.Channel}
	for {
		page, err := ep.History(ctx, req)
		if err != nil {
			return t.Explain(err)
		}
		if err := show(e, page, &end); err != nil {
			return err
		}
		if page.Next == 0 || !h.all {
			break
		}
		e.Progress("%s read, %d to go", view.Plural(uint64(end.Count), "message"), page.Remaining)
		req.From, req.Last, req.Since = page.Next, 0, 0
	}
	if end.Count == 0 && end.Next == 0 && !e.JSON {
		e.Note("no messages in %s", view.Channel(end.Channel))
		target.NoteUnknown(ctx, e, ep, end.Channel)
		return nil
	}
	return h.finish(e, end)
}

func (h *history) request(now time.Time) (wire.HistoryRequest, error) {
	req := wire.HistoryRequest{Channel: strings.TrimPrefix(h.channel, "#"), Limit: h.limit, From: h.from, Last: h.last}
	if err := wire.ValidateChannel(req.Channel); err != nil {
		return req, err
	}
	if h.lastSet && h.last < 1 {
		return req, command.Usagef("--last %d: want 1 or more", h.last)
	}
	if h.limit < 0 {
		return req, command.Usagef("--limit %d: must not be negative", h.limit)
	}
	set := 0
	for _, given := range []bool{h.last > 0, h.since != "", h.from > 0} {
		if given {
			set++
		}
	}
	if set > 1 {
		return req, command.Usagef("--last, --since and --from exclude each other")
	}
	if h.since != "" {
		at, err := Since(h.since, now)
		if err != nil {
			return req, err
		}
		req.Since = at.UnixMilli()
	}
	if set == 0 && !h.all {
		req.Last = defaultLast
		if h.limit > 0 {
			req.Last = h.limit
		}
	}
	return req, nil
}

// show prints a page and counts it.
func show(e *command.Env, page endpoint.HistoryPage, end *PageEnd) error {
	for _, d := range page.Messages {
		en := view.EntryOf(d)
		if err := e.Each(en, en.Text); err != nil {
			return err
		}
		end.Count++
	}
	end.Next, end.Remaining = page.Next, page.Remaining
	end.Skipped += page.Skipped
	return nil
}

func (h *history) finish(e *command.Env, end PageEnd) error {
	if e.JSON {
		return e.Each(end, nil)
	}
	if end.Skipped > 0 {
		e.Note("%s left out for not keeping to the contract", view.Plural(uint64(end.Skipped), "stored message"))
	}
	if end.Next > 0 {
		e.Note("%d more; go on with: cotal %s %s --from %d", end.Remaining, h.verb, command.Quote(end.Channel), end.Next)
	}
	return nil
}

// Since reads a point in time: a duration before now, with d for days, or an RFC 3339 time.
func Since(s string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return at, nil
	}
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || d < 0 {
		return time.Time{}, command.Usagef("--since %q: want a duration such as 90m or 3d, or a time such as 2006-01-02T15:04:05Z", s)
	}
	return now.Add(-d), nil
}
