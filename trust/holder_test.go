package trust_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

func TestHolderReadsWhoseConnectionItIs(t *testing.T) {
	id := trust.Identity{
		Space: space, Profile: trust.Agent, Lifecycle: wire.Lifecycle{Principal: ada, UID: adaUID}, Inbox: string(adaUID),
		Role: "reviewer", Subscribe: []string{"general"},
	}
	if profile, life, err := trust.Holder(id.Tags()); err != nil || profile != trust.Agent || life != id.Lifecycle {
		t.Errorf("Holder of the tags of %v = %q, %v, %v", id.Lifecycle, profile, life, err)
	}
	for name, tags := range map[string][]string{
		"none":          nil,
		"foreign":       {"team:blue"},
		"no profile":    slices.DeleteFunc(id.Tags(), func(s string) bool { return s == "profile:agent" }),
		"no uid":        slices.DeleteFunc(id.Tags(), func(s string) bool { return s == "uid:"+string(adaUID) }),
		"two actors":    append(id.Tags(), "actor:bob"),
		"two profiles":  append(id.Tags(), "profile:delivery"),
		"hostile actor": {"profile:agent", "owner:local", "actor:a.b", "uid:" + string(adaUID)},
		"wildcard":      {"profile:agent", "owner:local", "actor:*", "uid:" + string(adaUID)},
	} {
		if profile, life, err := trust.Holder(tags); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("%s: Holder(%q) = %q, %v, %v; want a bad request", name, tags, profile, life, err)
		}
	}
}
