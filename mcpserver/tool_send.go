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

type sendArgs struct {
	Channel  string   `json:"channel" jsonschema:"name of one channel, with or without #"`
	Text     string   `json:"text" jsonschema:"what to say"`
	Mentions []string `json:"mentions,omitempty" jsonschema:"names or principals of those whom the message is for; nothing is sent when one of them means nobody"`
	ReplyTo  string   `json:"reply_to,omitempty" jsonschema:"id of the message that this one answers"`
}

func (s *Server) send(ctx context.Context, _ *mcp.CallToolRequest, in sendArgs) (string, error) {
	channel := strings.TrimPrefix(in.Channel, "#")
	if err := wire.ValidateChannel(channel); err != nil {
		return "", err
	}
	names := make([]string, len(in.Mentions))
	for i, m := range in.Mentions {
		names[i] = strings.ToLower(strings.TrimPrefix(m, "@"))
	}
	reach, rerr := s.reach(ctx, wire.ReachRequest{Channel: channel, Mentions: names})
	for _, m := range reach.Mentions {
		if m.Tier == wire.ReachNobody && m.Reason != wire.MentionUnread && m.Reason != wire.MentionSelf {
			return "", undone(wire.CodeNotFound, "post to channel %q: the mention %q is %s", channel, m.Name, m.Reason)
		}
	}
	d, err := s.draft(in.Text, in.ReplyTo)
	if err != nil {
		return "", err
	}
	d.Mentions = names
	r, err := s.ep.Post(ctx, channel, d)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "posted to #%s, id %s, stored at sequence %d\n", channel, r.ID, r.Sequence)
	switch {
	case rerr != nil:
		b.WriteString("who gets it is not known: nobody answers that at the moment\n")
	default:
		fmt.Fprintf(&b, "members that are there: %d; that get it when they come back: %d\n", reach.Live, reach.Stored)
	}
	for _, m := range reach.Mentions {
		fmt.Fprintf(&b, "mention of %s: %s%s\n", said(m.Name, maxName), m.Tier, because(m.Reason))
	}
	return b.String(), nil
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + oneLine(reason) + ")"
}

// reach asks who would get a message; a question without an answer in time is an error that sending does without.
func (s *Server) reach(ctx context.Context, req wire.ReachRequest) (wire.ReachReply, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	return s.ep.Reach(ctx, req)
}

func (s *Server) draft(text, replyTo string) (endpoint.Draft, error) {
	if strings.TrimSpace(text) == "" {
		return endpoint.Draft{}, undone(wire.CodeBadRequest, "send message: the text is empty")
	}
	d := endpoint.Text(text)
	var err error
	d.ReplyTo, err = s.labels.id(replyTo)
	return d, err
}

// undone is a refusal before anything was done.
func undone(code wire.Code, format string, args ...any) *wire.Error {
	e := wire.Errorf(code, format, args...)
	e.Outcome = wire.OutcomeNotExecuted
	return e
}

type dmArgs struct {
	To      string `json:"to" jsonschema:"whom: a principal such as local.ada, or a name that one participant bears"`
	Text    string `json:"text" jsonschema:"what to say"`
	ReplyTo string `json:"reply_to,omitempty" jsonschema:"id of the message that this one answers"`
}

func (s *Server) dm(ctx context.Context, _ *mcp.CallToolRequest, in dmArgs) (string, error) {
	d, err := s.draft(in.Text, in.ReplyTo)
	if err != nil {
		return "", err
	}
	to, err := s.resolve(ctx, in.To)
	if err != nil {
		return "", err
	}
	outlook, err := s.outlook(ctx, "send to", to)
	if err != nil {
		return "", err
	}
	r, err := s.ep.Direct(ctx, to, d)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("sent to %s, id %s, stored at sequence %d; %s\n", to, r.ID, r.Sequence, outlook), nil
}

// outlook says what becomes of a message to one participant. Its error is not-found, when there is none of that name.
func (s *Server) outlook(ctx context.Context, verb string, to wire.Principal) (string, error) {
	reach, err := s.reach(ctx, wire.ReachRequest{To: to.String()})
	if err == nil && reach.Tier == wire.ReachNobody {
		return "", undone(wire.CodeNotFound, "%s %q: there is no such participant", verb, to)
	}
	return tier(reach, err), nil
}

// tier says in words what becomes of a message to one addressee. Stored is all that is ever promised here.
func tier(r wire.ReachReply, err error) string {
	if err != nil {
		return "whether the recipient is there is not known; that it was read is what cotal_receipt tells"
	}
	what := "the recipient is there; that it was read is what cotal_receipt tells"
	if r.Tier != wire.ReachLive {
		what = "the recipient is not there and gets it when it comes back" + because(r.Reason)
	}
	if r.Waiting > 0 {
		what += fmt.Sprintf("; %s before it", plural(r.Waiting, "message"))
	}
	return what
}

type askArgs struct {
	Role string `json:"role,omitempty" jsonschema:"the role to ask: one holder takes the question; either this or to"`
	To   string `json:"to,omitempty" jsonschema:"whom to ask: a principal or a name; either this or role"`
	Text string `json:"text" jsonschema:"the question"`
	Wait int    `json:"wait_seconds,omitempty" jsonschema:"how long to wait for the answer, 0 to 300; default 0: the answer comes to the inbox"`
}

// maxWait bounds the wait of one call in seconds.
const maxWait = 300

func (s *Server) ask(ctx context.Context, req *mcp.CallToolRequest, in askArgs) (string, error) {
	switch {
	case (in.Role == "") == (in.To == ""):
		return "", undone(wire.CodeBadRequest, "ask: want one of role and to")
	case in.Wait < 0 || in.Wait > maxWait:
		return "", undone(wire.CodeBadRequest, "ask: wait_seconds %d is not from 0 to %d", in.Wait, maxWait)
	}
	d, err := s.draft(in.Text, "")
	if err != nil {
		return "", err
	}
	sent, id, err := s.question(ctx, in, d)
	if err != nil || in.Wait == 0 {
		return sent, err
	}
	came, forget := s.inbox.answer(id)
	defer forget()
	if err := s.await(ctx, req, came, time.Duration(in.Wait)*time.Second); err != nil {
		return "", err
	}
	select {
	case <-came:
	default:
		return sent + fmt.Sprintf("no answer within %d s; it comes to the inbox, in reply to %s\n", in.Wait, id), nil
	}
	p := s.compose(ctx, PageChars, s.inbox.answering(id))
	if p.count == 0 {
		return sent + fmt.Sprintf("no answer can come while your inbox is full: read and acknowledge what is in cotal_inbox; the answer comes after it, in reply to %s\n", id), nil
	}
	return sent + p.text + s.tail(ctx, p, false), nil
}

// question sends and says what was sent, and its id.
func (s *Server) question(ctx context.Context, in askArgs, d endpoint.Draft) (text, id string, err error) {
	if in.To != "" {
		to, err := s.resolve(ctx, in.To)
		if err != nil {
			return "", "", err
		}
		outlook, err := s.outlook(ctx, "ask", to)
		if err != nil {
			return "", "", err
		}
		r, err := s.ep.Direct(ctx, to, d)
		if err != nil {
			return "", "", err
		}
		return fmt.Sprintf("asked %s, id %s, stored at sequence %d; %s\n", to, r.ID, r.Sequence, outlook), r.ID, nil
	}
	role := strings.TrimPrefix(in.Role, "@")
	reach, rerr := s.reach(ctx, wire.ReachRequest{Role: role})
	if rerr == nil && reach.Tier == wire.ReachNobody {
		return "", "", undone(wire.CodeNotFound, "ask role %q: nobody holds it%s", role, because(reach.Reason))
	}
	r, err := s.ep.Ask(ctx, role, d)
	if err != nil {
		return "", "", err
	}
	if rerr != nil {
		return fmt.Sprintf("asked the role %s, id %s, stored at sequence %d; who holds it is not known\n", role, r.ID, r.Sequence), r.ID, nil
	}
	return fmt.Sprintf("asked the role %s, id %s, stored at sequence %d; holders that are there: %d; questions before it: %d\n", role, r.ID, r.Sequence, reach.Live, reach.Waiting), r.ID, nil
}

// progressEvery is how often a client that waits is told that the wait goes on, so that it does not give up.
const progressEvery = 10 * time.Second

// await returns when done is closed or the time is over. Its error is that the client cancelled the call.
func (s *Server) await(ctx context.Context, req *mcp.CallToolRequest, done <-chan struct{}, limit time.Duration) error {
	end := time.NewTimer(limit)
	defer end.Stop()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	begun := time.Now()
	for {
		select {
		case <-done:
			return nil
		case <-end.C:
			return nil
		case <-ctx.Done():
			return wire.Errorf(wire.CodeCancelled, "wait for an answer: the call was cancelled; the question stands")
		case <-tick.C:
			if token := req.Params.GetProgressToken(); token != nil {
				_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ // without it the client may give up earlier
					ProgressToken: token, Progress: time.Since(begun).Seconds(), Total: limit.Seconds(), Message: "no answer yet",
				})
			}
		}
	}
}
