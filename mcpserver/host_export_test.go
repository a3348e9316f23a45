package mcpserver

import "context"

// HostTells is HostEvent with what is told beside the event.
func (s *Server) HostTells(ctx context.Context, event string, d Detail) (page string) {
	return s.answerHook(ctx, hookRequest{V: hookVersion, Event: event, Detail: d}).Page
}

// HostShown tells that the host was given a page, which it may still drop.
func (s *Server) HostShown(ctx context.Context, page string) {
	s.answerHook(ctx, hookRequest{V: hookVersion, Event: eventWritten, Page: page, Shown: true})
}
