package command

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/cotal-go/cotal/wire"
)

// Confirm asks the person whether to go on and returns nil for yes. The question ends with what happens, without a
// question mark. Without a terminal, and with --json, nobody is asked and refusal is returned as it is: a script says
// --force.
//
// Errors: refusal; failed-precondition when the person does not say yes.
func (e *Env) Confirm(ctx context.Context, refusal error, question string) error {
	if e.JSON || !e.Interactive() {
		return refusal
	}
	fmt.Fprintf(e.Stdout, "%s? [y/N] ", SafeBody(question, "  "))
	answer := make(chan string, 1)
	go func() { // a read that waits for a key cannot be called back: it ends with the next line or the process
		line, err := bufio.NewReader(e.Stdin).ReadString('\n')
		if err != nil && err != io.EOF {
			line = ""
		}
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	said := ""
	select {
	case said = <-answer:
	case <-ctx.Done():
		fmt.Fprintln(e.Stdout)
	}
	if said == "y" || said == "yes" {
		return nil
	}
	no := wire.Errorf(wire.CodeFailedPrecondition, "not confirmed; nothing was done")
	no.Outcome = wire.OutcomeNotExecuted
	return no
}
