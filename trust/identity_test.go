package trust_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

func identity(edit func(id *trust.Identity)) trust.Identity {
	id := trust.Identity{
		Space: space, Profile: trust.Agent, Lifecycle: wire.Lifecycle{Principal: ada, UID: adaUID}, Inbox: string(adaUID),
		Subscribe: []string{"general"}, Publish: []string{"general"},
	}
	if edit != nil {
		edit(&id)
	}
	return id
}

func TestIdentityValidate(t *testing.T) {
	long := make([]string, trust.MaxPatterns+1)
	for i := range long {
		long[i] = fmt.Sprintf("c%d", i)
	}
	commands := make([]string, trust.MaxCommands+1)
	for i := range commands {
		commands[i] = fmt.Sprintf("manager.c%d", i)
	}
	if err := identity(nil).Validate(); err != nil {
		t.Fatalf("the plain identity: %v", err)
	}
	for name, c := range map[string]struct {
		want error
		edit func(id *trust.Identity)
	}{
		"no space":        {wire.ErrBadRequest, func(id *trust.Identity) { id.Space = "" }},
		"wildcard space":  {wire.ErrBadRequest, func(id *trust.Identity) { id.Space = ">" }},
		"unknown profile": {wire.ErrBadRequest, func(id *trust.Identity) { id.Profile = "root" }},
		"no profile":      {wire.ErrBadRequest, func(id *trust.Identity) { id.Profile = "" }},
		"system kind in space": {wire.ErrBadRequest, func(id *trust.Identity) {
			*id = identity(nil)
			id.Profile = "system-node"
			id.Subscribe, id.Publish = nil, nil
		}},
		"wildcard actor":      {wire.ErrBadRequest, func(id *trust.Identity) { id.Actor = "*" }},
		"dotted actor":        {wire.ErrBadRequest, func(id *trust.Identity) { id.Actor = "a.b" }},
		"unknown owner":       {wire.ErrBadRequest, func(id *trust.Identity) { id.Owner = "somebody" }},
		"short uid":           {wire.ErrBadRequest, func(id *trust.Identity) { id.UID = "abc" }},
		"foreign inbox":       {wire.ErrBadRequest, func(id *trust.Identity) { id.Inbox = string(bobUID) }},
		"wildcard role":       {wire.ErrBadRequest, func(id *trust.Identity) { id.Role = ">" }},
		"bad pattern":         {wire.ErrBadRequest, func(id *trust.Identity) { id.Subscribe = []string{"a..b"} }},
		"template in pattern": {wire.ErrBadRequest, func(id *trust.Identity) { id.Publish = []string{"{{tag(uid)}}"} }},
		"inner full wildcard": {wire.ErrBadRequest, func(id *trust.Identity) { id.Publish = []string{">.a"} }},
		"doubled pattern":     {wire.ErrBadRequest, func(id *trust.Identity) { id.Publish = []string{"a", "a"} }},
		"wildcard command":    {wire.ErrBadRequest, func(id *trust.Identity) { id.Commands = []string{"manager.*"} }},
		"command with mode":   {wire.ErrBadRequest, func(id *trust.Identity) { id.Commands = []string{"manager.stop.any.local"} }},
		"bare command":        {wire.ErrBadRequest, func(id *trust.Identity) { id.Commands = []string{"stop"} }},
		"reserved command":    {wire.ErrPermissionDenied, func(id *trust.Identity) { id.Commands = []string{"delivery.channel-set"} }},
		"long subscribe list": {wire.ErrExhausted, func(id *trust.Identity) { id.Subscribe = long }},
		"long publish list":   {wire.ErrExhausted, func(id *trust.Identity) { id.Publish = long }},
		"long commands":       {wire.ErrExhausted, func(id *trust.Identity) { id.Commands = commands }},
		"long patterns":       {wire.ErrExhausted, func(id *trust.Identity) { id.Publish = []string{strings.Repeat("x", 4096), strings.Repeat("y", 4096)} }},
		"lists of a service":  {wire.ErrBadRequest, func(id *trust.Identity) { id.Profile = trust.Delivery }},
		"unholdable pair":     {wire.ErrBadRequest, func(id *trust.Identity) { id.Subscribe = []string{"team.*", "team.a.b"} }},
	} {
		if err := identity(c.edit).Validate(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	operator := identity(func(id *trust.Identity) { id.Profile = trust.Operator; id.Commands = []string{"delivery.channel-set"} })
	if err := operator.Validate(); err != nil {
		t.Errorf("an operator with a reserved command: %v", err)
	}
}

// TestTagsKeepCase guards against jwt.TagList.Add, which folds it.
func TestTagsKeepCase(t *testing.T) {
	id := identity(func(id *trust.Identity) {
		id.Actor, id.Role, id.Subscribe, id.Publish = "MixedCase", "Reviewer", []string{"Team.Alpha"}, []string{"LOUD"}
	})
	got := strings.Join(id.Tags(), " ")
	for _, want := range []string{"actor:MixedCase", "role:Reviewer", "sub:Team.Alpha", "pub:LOUD", "space:main", "profile:agent", "nosub:="} {
		if !strings.Contains(got, want) {
			t.Errorf("tags %q lack %q", got, want)
		}
	}
}

func TestDenyTags(t *testing.T) {
	for _, c := range []struct {
		list []string
		want string
	}{
		{[]string{"general"}, "="},
		{[]string{"team.*"}, "team.*.> ="},
		{[]string{"*"}, "*.> ="},
		{[]string{"team.*", "team.>"}, "="},
		{[]string{"team.*", ">"}, "="},
		{[]string{"a.*", "b.*"}, "a.*.> b.*.> ="},
		{[]string{"*.*", "a"}, "*.*.> ="},
		{[]string{"a.*.c"}, "="},
		{nil, "="},
	} {
		id := identity(func(id *trust.Identity) { id.Subscribe = c.list })
		if err := id.Validate(); err != nil {
			t.Errorf("list %q: %v", c.list, err)
		}
		var got []string
		for _, tag := range id.Tags() {
			if v, ok := strings.CutPrefix(tag, "nosub:"); ok {
				got = append(got, v)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("list %q withholds %q, want %q", c.list, got, c.want)
		}
	}
	for _, list := range [][]string{{"team.*", "team.a.b"}, {"*", "team.a"}, {"*.x", "*.*", "a.b.c"}, {"a.*", "*.b.c"}} {
		if err := identity(func(id *trust.Identity) { id.Subscribe = list }).Validate(); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("list %q: %v, want a refusal: the broker cannot hold it", list, err)
		}
	}
}

// TestForeignTags: a credential from elsewhere is read strictly where it matters and leniently where it does not.
func TestForeignTags(t *testing.T) {
	r := newRealm(t)
	good := identity(nil).Tags()
	read := func(edit func(c *jwt.UserClaims)) error {
		f := r.forge(t, trust.Agent, edit)
		_, err := trust.NewCredentials(f.token, f.user.Seed().Reveal())
		return err
	}
	if err := read(func(c *jwt.UserClaims) { c.Tags = append(good, "later:thing", "free text") }); err != nil {
		t.Errorf("unknown tags: %v", err)
	}
	for name, edit := range map[string]func(c *jwt.UserClaims){
		"two actors":   func(c *jwt.UserClaims) { c.Tags = append(good, "actor:bob") },
		"empty owner":  func(c *jwt.UserClaims) { c.Tags = append(good[1:], "owner:") },
		"no tags":      func(c *jwt.UserClaims) { c.Tags = nil },
		"no expiry":    func(c *jwt.UserClaims) { c.Tags = good; c.Expires = 0 },
		"past expiry":  func(c *jwt.UserClaims) { c.Tags = good; c.Expires = 1 },
		"hostile list": func(c *jwt.UserClaims) { c.Tags = append(good, "sub:a b") },
	} {
		if err := read(edit); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("%s: %v, want a bad request", name, err)
		}
	}
}

func TestLifetimes(t *testing.T) {
	for _, p := range trust.Profiles() {
		l := p.Lifetime()
		if l.Default <= 0 || l.Max < l.Default || l.Max > trust.MaxLifetime {
			t.Errorf("profile %s lives %v", p, l)
		}
	}
	for _, k := range trust.SystemKinds() {
		if l := k.Profile().Lifetime(); l.Default <= 0 || l.Max < l.Default || l.Max > 24*time.Hour {
			t.Errorf("kind %s lives %v", k, l)
		}
	}
	if l := trust.Profile("root").Lifetime(); l != (trust.Lifetime{}) {
		t.Errorf("an unknown profile lives %v", l)
	}
	if _, err := trust.ParseProfile("Agent"); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("ParseProfile of another case: %v, want a bad request", err)
	}
}
