package view

import (
	"strconv"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/space"
)

// Audit is one line about an audit record: when, what, of whom, with what outcome, by whom, and a sentence. What came from
// strangers is made safe.
func Audit(p *command.Printer, e space.AuditEntry) string {
	if e.Unreadable != "" {
		return p.Dim(When(e.Stored)) + " record " + strconv.FormatUint(e.Seq, 10) + " cannot be read: " + command.Safe(e.Unreadable)
	}
	line := p.Dim(When(e.At)) + " " + p.Bold(command.Safe(e.Action))
	if e.Target != "" {
		line += " " + command.Safe(e.Target)
	}
	line += ": " + command.Safe(e.Outcome)
	if e.Reason != "" {
		line += " (" + command.Safe(string(e.Reason)) + ")"
	}
	if e.Count > 1 {
		line += ", " + strconv.FormatUint(e.Count, 10) + " times"
	}
	line += ", by " + command.Safe(e.By)
	if e.Detail != "" {
		line += "; " + command.Safe(e.Detail)
	}
	return line
}
