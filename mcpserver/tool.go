package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cotal-go/cotal/wire"
)

// tool is one row of the table of tools.
type tool struct {
	name, about string
	readOnly    bool // it changes nothing but what its result says was shown
	add         func(*mcp.Server, tool)
}

// none is the argument of a tool that takes none.
type none struct{}

// typed binds a tool to a method that returns the text of its result. Its arguments are those of In and no others.
func typed[In any](s *Server, fn func(context.Context, *mcp.CallToolRequest, In) (string, error)) func(*mcp.Server, tool) {
	return func(m *mcp.Server, t tool) {
		closed := false
		notes := &mcp.ToolAnnotations{ReadOnlyHint: t.readOnly, OpenWorldHint: &closed}
		mcp.AddTool(m, &mcp.Tool{Name: t.name, Description: t.about, Annotations: notes},
			func(ctx context.Context, req *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
				if err := twice(req.Params.Arguments); err != nil {
					return nil, nil, refusal(err)
				}
				s.begun(ctx)
				text, err := fn(ctx, req, in)
				if err != nil {
					return nil, nil, refusal(err)
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
			})
	}
}

// beginWithin is how long a call waits for the start to be over, so that the first one sees what was joined.
const beginWithin = 3 * time.Second

// begun returns once messages are received, or when it is not worth waiting any more. While another process of the agent ends it is.
func (s *Server) begun(ctx context.Context) {
	select {
	case <-s.ready:
		return
	default:
	}
	select {
	case <-s.alone:
	case <-time.After(s.opts.TakeOver):
	case <-ctx.Done():
		return
	}
	t := time.NewTimer(beginWithin)
	defer t.Stop()
	select {
	case <-s.ready:
	case <-t.C:
	case <-ctx.Done():
	}
}

// maxArguments bounds the arguments of a call in bytes: a message, written with escapes.
const maxArguments = 8 * wire.MaxMessage

// twice refuses arguments in which a key stands twice, of which readers take different ones.
func twice(raw json.RawMessage) error {
	if len(raw) == 0 {
		return nil
	}
	var v map[string]any
	return wire.Decode(raw, &v, maxArguments)
}

// refusal is an error as a tool says it: one line with its code, and what state was left when that is known.
func refusal(err error) error {
	code, outcome := wire.CodeOf(err), ""
	if e, ok := errors.AsType[*wire.Error](err); ok {
		switch e.Outcome {
		case wire.OutcomeNotExecuted:
			outcome = "; nothing was done"
		case wire.OutcomeUnknown:
			outcome = "; whether it was done is not known: look before you repeat it"
		}
	}
	text := oneLineOf(err.Error(), 2000)
	if strings.HasSuffix(text, strings.TrimPrefix(outcome, "; ")) {
		outcome = ""
	}
	return fmt.Errorf("%s: %s%s", code, text, outcome)
}

// oneLineOf bounds a text of ours that may quote a peer, and keeps it on one line; quotes and brackets stay.
func oneLineOf(s string, limit int) string {
	var b strings.Builder
	n, prev := 0, rune(0)
	for i, r := range s {
		if n++; n > limit {
			b.WriteString("…")
			break
		}
		if harmful(prev, r, s[i:]) {
			escape(&b, r)
		} else {
			b.WriteRune(r)
		}
		prev = r
	}
	return b.String()
}

// tools is the table, in the order in which a reader meets them. Those of a supervisor are there when the credential can use them; to
// end oneself everybody may.
func (s *Server) tools() []tool {
	all := []tool{
		{"cotal_orient", "Who you are in the space, who is there, what waits for you, and what to do first.", true, typed(s, s.orient)},
		{"cotal_roster", "Lists who is in the space, what each one is doing, and who is gone.", true, typed(s, s.roster)},
		{"cotal_inbox", "Shows the messages that wait for you: direct ones first, then mentions, then channels. Nothing is acknowledged until you call it again with the id of the page, in ack.", false, typed(s, s.readInbox)},
		{"cotal_send", "Posts to a channel.", false, typed(s, s.send)},
		{"cotal_dm", "Sends a direct message to one participant, who gets it also when it is away.", false, typed(s, s.dm)},
		{"cotal_ask", "Asks anyone with a role, or one participant, and can wait for the answer.", false, typed(s, s.ask)},
		{"cotal_history", "Reads stored messages of a channel.", true, typed(s, s.history)},
		{"cotal_channels", "Lists the channels, and which of them you have joined.", true, typed(s, s.channels)},
		{"cotal_join", "Makes you a member of a channel: what is posted from now on comes to your inbox.", false, typed(s, s.joinChannel)},
		{"cotal_leave", "Ends your membership of a channel.", false, typed(s, s.leaveChannel)},
		{"cotal_status", "Says what you are doing: idle, working or waiting. Without arguments it tells what you said last.", false, typed(s, s.status)},
		{"cotal_attention", "Says how you want to be disturbed: open; dnd, channel messages only at your next turn; focus, direct messages alone. Everything stays in the inbox.", false, typed(s, s.attention)},
		{"cotal_receipt", "Tells what became of a message that you sent or received.", true, typed(s, s.receipt)},
		{"cotal_despawn", "Ends an agent that you started or, without a name, yourself.", false, typed(s, s.despawn)},
	}
	if s.manager != nil {
		all = append(all,
			tool{"cotal_spawn", "Starts an agent from an agent file of the supervisor's host.", false, typed(s, s.spawn)},
			tool{"cotal_persona", "Lists agent files, shows one, or with a text defines one. A new one hears and posts to general as far as you may. A change is of text and model, never of access.", false, typed(s, s.persona)})
	}
	return all
}
