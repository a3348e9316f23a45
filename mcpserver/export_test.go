package mcpserver

import (
	"context"
	"strings"
	"time"
)

// Patient lets tests that are about other things wait for an answer of the mesh as long as it takes.
func Patient() { askWithin = time.Minute }

// TellHook is Hook for as long as ctx lasts.
var TellHook = tellHook

// HostEvent tells of an event of the host without the socket, which would stop the clock of a bubble. It returns the page that a turn
// is to begin with.
func (s *Server) HostEvent(ctx context.Context, event string) (page string) {
	return s.answerHook(ctx, hookRequest{V: hookVersion, Event: event}).Page
}

// Quote is how the text of a message is shown.
func Quote(text string) string {
	var b strings.Builder
	quote(&b, text)
	return b.String()
}

// ChannelNames is how a list of channels is shown.
func ChannelNames(patterns []string) string { return channelNames(patterns) }

// Claim is how text of a peer is shown in a line of ours.
func Claim(text string) string { return claim(text, 1000) }

// Rejoin goes on with one of the memberships that were listed at the start.
func (s *Server) Rejoin(ctx context.Context, pattern string) error { return s.rejoinOne(ctx, pattern) }
