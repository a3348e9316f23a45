package wire_test

import (
	"errors"
	"fmt"

	"github.com/cotal-go/cotal/wire"
)

// A sender builds a subject and a payload; a receiver checks both together.
func Example() {
	me := wire.Principal{Owner: wire.LocalOwner, Actor: "ada"}
	subject, err := wire.ChannelSubject("main", me, "team.backend")
	if err != nil {
		fmt.Println(err)
		return
	}
	m := &wire.Message{
		ID: "m1", TS: 1767225600123, Space: "main", From: wire.EndpointRef{ID: me.String(), Name: "ada"},
		Channel: "team.backend", Parts: []wire.Part{wire.Text("the build is green")},
	}
	payload, err := m.AppendJSON(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	sub, got, err := wire.Receive(subject, payload)
	fmt.Println(sub.Kind, sub.Sender, got.Text(), err)

	// The same payload under another's subject is a forgery.
	_, _, err = wire.Receive("cotal.main.chat.local.eve.team.backend", payload)
	fmt.Println(wire.CodeOf(err), wire.ReasonOf(err))
	// Output:
	// channel local.ada the build is green <nil>
	// sender-mismatch sender-mismatch
}

func ExampleErrorf() {
	err := fmt.Errorf("join channel %q: %w", "ops", wire.Errorf(wire.CodePermissionDenied, "not in the read list of %s", "local.ada"))
	fmt.Println(err)
	fmt.Println(errors.Is(err, wire.ErrPermissionDenied), wire.CodeOf(err).Exit(), wire.CodeOf(err).HTTP(), wire.CodeOf(err).Retry())
	// Output:
	// join channel "ops": not in the read list of local.ada
	// true 3 403 no
}

func ExamplePatternCovers() {
	fmt.Println(wire.PatternCovers("team.>", "team.backend.*"), wire.PatternCovers("team.*", "team.>"))
	// Output: true false
}

func ExamplePatternsCover() {
	granted := []string{"general", "team.*"}
	fmt.Println(wire.PatternsCover(granted, "team.backend"), wire.PatternsCover(granted, ">"), wire.PatternsCover(nil, "general"))
	// Output: true false false
}
