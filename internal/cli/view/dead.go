package view

import (
	"fmt"
	"strings"
)

// Why is why a message died without what a line about it says anyway: that it was given up after so many attempts. Counted
// reports that how often it was tried is in the words themselves.
func Why(reason string, attempts int) (why string, counted bool) {
	if rest, ok := strings.CutPrefix(reason, fmt.Sprintf("gave up after %d attempts", attempts)); ok && (rest == "" || strings.HasPrefix(rest, ": ")) {
		return strings.TrimPrefix(rest, ": "), false
	}
	return reason, reason == fmt.Sprintf("not handled after %d deliveries", attempts)
}
