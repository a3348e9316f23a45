package wire

import "strings"

// ParseLiveFilter returns the channel pattern that a subscription to live copies listens to, whoever posts there: the
// argument of LiveFilter, and ">" for a subscription to everything live. It is false for a subscription to anything
// else, or to the posts of some senders only.
func ParseLiveFilter(s Space, subject string) (pattern string, ok bool) {
	rest, ok := strings.CutPrefix(subject, s.Prefix()+".live.")
	if !ok {
		return "", false
	}
	if rest == ">" || rest == "*.>" {
		return ">", true
	}
	pattern, ok = strings.CutPrefix(rest, "*.*.")
	return pattern, ok && ValidatePattern(pattern) == nil
}
