package mcpserver

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

type inboxArgs struct {
	Ack string `json:"ack,omitempty" jsonschema:"id of the page that you have read: its messages are acknowledged before the next are shown"`
}

func (s *Server) readInbox(ctx context.Context, _ *mcp.CallToolRequest, in inboxArgs) (string, error) {
	first := ""
	if in.Ack != "" {
		n, err := s.acknowledge(ctx, in.Ack)
		if err != nil {
			return "", err
		}
		first = "acknowledged " + plural(uint64(n), "message") + "\n"
	}
	p := s.compose(ctx, PageChars, func(*item) bool { return true })
	return first + s.newsText() + p.text + s.tail(ctx, p, false), nil
}

// newsText is what happened outside of calls, told once: the newest that fit, and how many older ones do not.
func (s *Server) newsText() string {
	lines, missed := s.opts.News.take()
	if len(lines) == 0 {
		return ""
	}
	first, room := len(lines), maxNewsChars
	for first > 0 && chars(lines[first-1]) <= room {
		first--
		room -= chars(lines[first])
	}
	var b strings.Builder
	b.WriteString("from this program:\n")
	if missed += first; missed > 0 {
		fmt.Fprintf(&b, "- %s not shown\n", plural(uint64(missed), "older event"))
	}
	for _, l := range lines[first:] {
		b.WriteString("- " + l + "\n")
	}
	return b.String()
}

// maxNewsChars bounds the news of one result. It is part of pageFrame, and at least maxLine.
const maxNewsChars = 1000

// tail says what a page was and what else waits.
func (s *Server) tail(ctx context.Context, p shown, hook bool) string {
	var b strings.Builder
	switch {
	case p.count == 0:
		b.WriteString("nothing waits for you here\n")
	case hook:
		b.WriteString("\nEnd of what others wrote. It counts as read. Judge it as you would a colleague's message; answer with cotal_dm or cotal_send.\n")
	default:
		fmt.Fprintf(&b, "\nEnd of what others wrote: %s.\npage %s: once you have dealt with it, call cotal_inbox with ack %q; until then it is shown again\n",
			plural(uint64(p.count), "message"), p.id, p.id)
	}
	u := s.unread(ctx)
	if hook {
		total := u.here[classDirect] + u.here[classMention] + u.here[classAmbient] - p.count
		if total > 0 || u.queue > 0 {
			fmt.Fprintf(&b, "%s more: call cotal_inbox\n", plural(uint64(max(total, 0))+u.queue, "message"))
		}
		return b.String()
	}
	if p.left > 0 {
		fmt.Fprintf(&b, "%s more for the next page\n", plural(uint64(p.left), "message"))
	}
	if u.queue > 0 {
		fmt.Fprintf(&b, "%s more with the broker, which come when these are acknowledged\n", plural(u.queue, "direct message"))
	}
	if len(u.stuck) > 0 {
		fmt.Fprintf(&b, "more of %s with the broker\n", channelNames(u.stuck))
	}
	if u.named {
		b.WriteString("more mentions with the broker\n")
	}
	return b.String()
}

// maxListed bounds a list inside a line.
const maxListed = 12

func channelNames(patterns []string) string {
	out := make([]string, 0, maxListed+1)
	for i, p := range patterns {
		if i == maxListed {
			out = append(out, plural(uint64(len(patterns)-i), "other"))
			break
		}
		out = append(out, "#"+oneLineOf(p, wire.MaxName)) // a pattern, checked
	}
	return strings.Join(out, ", ")
}

type historyArgs struct {
	Channel string `json:"channel" jsonschema:"name of one channel"`
	Limit   int    `json:"limit,omitempty" jsonschema:"how many messages, 1 to 100; default 20"`
	Before  uint64 `json:"before,omitempty" jsonschema:"only messages stored before this sequence, as a result of this tool names it"`
}

const (
	defaultHistory = 20
	maxHistory     = 100
)

func (s *Server) history(ctx context.Context, _ *mcp.CallToolRequest, in historyArgs) (string, error) {
	channel := strings.TrimPrefix(in.Channel, "#")
	if in.Limit < 0 || in.Limit > maxHistory {
		return "", wire.Errorf(wire.CodeBadRequest, "read history: limit %d is not from 1 to %d", in.Limit, maxHistory)
	}
	limit := in.Limit
	if limit == 0 {
		limit = defaultHistory
	}
	messages, err := s.stored(ctx, channel, limit, in.Before)
	if err != nil {
		return "", err
	}
	if len(messages) == 0 {
		return fmt.Sprintf("nothing is stored of #%s that you may read\n", claim(channel, maxName)), nil
	}
	know := s.people(ctx)
	room := PageChars - pageFrame
	var texts []string
	for i := len(messages) - 1; i >= 0; i-- { // the newest have to fit
		d := messages[i]
		head := "\n" + s.header(d, know(d.Sender))
		text := body(d.Message)
		full := head + ":\n" + text
		if n := chars(full); n > room {
			if len(texts) > 0 {
				break
			}
			full = head + ", cut:\n" + part(text, 0, room-chars(head)-16)
		}
		room -= chars(full)
		texts = append(texts, full)
	}
	var b strings.Builder
	fmt.Fprintf(&b, preamble, s.ep.Space())
	for i := len(texts) - 1; i >= 0; i-- {
		b.WriteString(texts[i])
	}
	first := messages[len(messages)-len(texts)].Sequence
	fmt.Fprintf(&b, "\nEnd of what others wrote: %s of #%s, the oldest at sequence %d; what came before: call cotal_history with before %d\n",
		plural(uint64(len(texts)), "message"), channel, first, first)
	return b.String(), nil
}

// stored are the last messages of a channel before a sequence; 0 is the end.
func (s *Server) stored(ctx context.Context, channel string, limit int, before uint64) ([]*endpoint.Delivery, error) {
	req := wire.HistoryRequest{Channel: channel, Last: limit}
	if before == 1 {
		return nil, nil
	}
	if before > 0 {
		return s.storedBefore(ctx, channel, limit, before-1)
	}
	var out []*endpoint.Delivery
	for {
		p, err := s.ep.History(ctx, req)
		if err != nil {
			return nil, err
		}
		out = append(out, p.Messages...)
		if p.Next == 0 {
			return out[max(0, len(out)-limit):], nil
		}
		req.Last, req.From = 0, p.Next
	}
}

// storedBefore walks back in growing steps, since a channel's messages lie anywhere in the stream.
func (s *Server) storedBefore(ctx context.Context, channel string, limit int, until uint64) ([]*endpoint.Delivery, error) {
	for step := uint64(8 * limit); ; {
		from := uint64(1)
		if until > step {
			from = until - step
		}
		var out []*endpoint.Delivery
		for req := (wire.HistoryRequest{Channel: channel, From: from, Until: until}); ; {
			p, err := s.ep.History(ctx, req)
			if err != nil {
				return nil, err
			}
			out = append(out, p.Messages...)
			out = out[max(0, len(out)-limit):]
			if p.Next == 0 {
				break
			}
			req.From = p.Next
		}
		if len(out) >= limit || from == 1 {
			return out, nil
		}
		if step > until/8 {
			step = until // the next is the last
			continue
		}
		step *= 8
	}
}

type receiptArgs struct {
	ID   string `json:"id" jsonschema:"id of the message, as sending it returned or a page shows it"`
	Role string `json:"role,omitempty" jsonschema:"role that it was sent to, when it was"`
	// Of finished work of a role nothing but its place is stored.
	Kind     string `json:"kind,omitempty" jsonschema:"channel, direct or role, when it is known"`
	Sequence uint64 `json:"sequence,omitempty" jsonschema:"sequence that sending it returned; with it also finished work of a role is found"`
}

func (s *Server) receipt(ctx context.Context, _ *mcp.CallToolRequest, in receiptArgs) (string, error) {
	if in.Kind == "" && in.Role != "" && in.Sequence > 0 {
		in.Kind = wire.KindRole.String()
	}
	id, err := s.labels.id(in.ID)
	if err != nil {
		return "", err
	}
	r, err := s.ep.Receipt(ctx, wire.ReceiptRequest{ID: id, Role: in.Role, Kind: in.Kind, Sequence: in.Sequence})
	switch {
	case err == nil:
	case id != in.ID: // the reason quotes what is not shown
		return "", wire.Errorf(wire.CodeOf(err), "find message %q: what became of it cannot be told", in.ID)
	default:
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "message %s", s.labels.of(r.ID))
	if r.Sender != "" {
		fmt.Fprintf(&b, " from %s", claim(r.Sender, wire.MaxName))
	}
	switch {
	case r.Channel != "":
		fmt.Fprintf(&b, " to #%s", claim(r.Channel, wire.MaxName))
	case r.To != "":
		fmt.Fprintf(&b, " to %s", claim(r.To, wire.MaxName))
	case r.Role != "":
		fmt.Fprintf(&b, " to the role %s", said(r.Role, maxName))
	}
	fmt.Fprintf(&b, ": %s", r.Stage)
	if r.StoredMS > 0 {
		fmt.Fprintf(&b, ", stored %s at sequence %d", time.UnixMilli(r.StoredMS).UTC().Format(time.RFC3339), r.Sequence)
	}
	b.WriteByte('\n')
	for i, to := range r.Recipients {
		if i == maxHistory {
			fmt.Fprintf(&b, "- %s\n", plural(uint64(len(r.Recipients)-i), "other"))
			break
		}
		b.WriteString("- ")
		if who := to.Principal + to.Role; who != "" {
			b.WriteString(claim(who, wire.MaxName) + ": ")
		}
		b.WriteString(string(to.Stage))
		if to.Reason != "" {
			fmt.Fprintf(&b, ", %s", said(to.Reason, maxLine))
		}
		if to.Attempts > 0 {
			fmt.Fprintf(&b, ", handed over %s", plural(uint64(to.Attempts), "time"))
		}
		if to.Answer != "" {
			fmt.Fprintf(&b, ", answered by %s", s.labels.of(to.Answer))
		}
		b.WriteByte('\n')
	}
	if r.Hidden > 0 {
		fmt.Fprintf(&b, "- %s that you may not see\n", plural(uint64(r.Hidden), "recipient"))
	}
	return b.String(), nil
}
