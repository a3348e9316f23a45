package mcpserver

import "github.com/cotal-go/cotal/wire"

// moment is when messages could be given to the host.
type moment int

const (
	atPrompt moment = iota // a turn begins
	atStop                 // a turn has ended
)

// Attention decides what a message does by itself. All of them are in cotal_inbox whatever it says.
//
//	            open                        dnd                    focus
//	direct      wakes, given at both        the same               the same
//	mention     wakes, given at both        the same               wakes, is not given
//	channel     wakes, given at both        given at a prompt      neither
//
// What was read from what is stored, to catch up, never wakes when it is for everybody.

// wakes reports whether a message wakes an idle agent.
func wakes(it *item, attention string) bool {
	if it.class == classAmbient {
		return attention == wire.AttentionOpen && !it.d.Replayed
	}
	return true
}

// given reports whether a message is handed to the host at a moment.
func given(it *item, attention string, at moment) bool {
	switch it.class {
	case classDirect:
		return true
	case classMention:
		return attention != wire.AttentionFocus
	}
	switch attention {
	case wire.AttentionOpen:
		return at == atPrompt || !it.d.Replayed
	case wire.AttentionDND:
		return at == atPrompt
	}
	return false
}
