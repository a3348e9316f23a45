package space

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

// Plan is the list of streams that Ensure makes.
func Plan(s wire.Space, o *Options) []jetstream.StreamConfig {
	opts, err := o.withDefaults()
	if err != nil {
		panic(err)
	}
	all, err := plan(s, opts)
	if err != nil {
		panic(err)
	}
	return all
}

// Describe renders the compared settings of a stream that differ from a plain one.
func Describe(c jetstream.StreamConfig) string {
	plain := jetstream.StreamConfig{Replicas: 1}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", c.Name)
	for _, f := range streamFields {
		text := f.text(c)
		if shown := []string{"retention", "storage", "discard"}; slices.Contains(shown, f.name) || text != f.text(plain) {
			fmt.Fprintf(&b, "  %s: %s\n", f.name, text)
		}
	}
	return b.String()
}

// StreamFields names every compared setting.
func StreamFields() []string {
	var out []string
	for _, f := range streamFields {
		out = append(out, f.name)
	}
	return out
}
