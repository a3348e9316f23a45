package trust

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/wire"
)

// Limits of what one credential names. They keep the largest CONNECT that a client sends inside
// [MaxControlLine] and the largest template far below the broker's 4,096 expansions.
const (
	// MaxPatterns bounds the subscribe and the publish list, each.
	MaxPatterns = 128
	// MaxCommands bounds the granted control commands.
	MaxCommands = 64
	// MaxTagBytes bounds all tags as JSON, in which ">" takes six bytes.
	MaxTagBytes = 8 << 10
	// MaxControlLine is what a broker must accept as one protocol line for every credential we mint.
	MaxControlLine = 16 << 10
)

// Identity is what a credential says about its holder. The broker vouches for all of it once it has accepted the
// credential; before that it is what the credential's issuer wrote.
type Identity struct {
	// Space is empty for a credential of the system account.
	Space wire.Space
	// Profile says which template applies.
	Profile Profile
	// Account is the public key of the account that a [SystemWatcher] watches, empty for every other profile.
	Account string
	// Instance is as which a [Supervisor] serves; without one it serves nobody. Empty for every other profile.
	Instance string
	// Lifecycle is who speaks.
	wire.Lifecycle
	// Inbox is the tag of the holder's private inbox; wire.InboxPrefix makes the prefix of it.
	Inbox string
	// Role is the anycast role it serves, or empty.
	Role string
	// Subscribe and Publish are channel patterns; Commands are granted control commands, "<endpoint>.<command>".
	Subscribe, Publish, Commands []string
	// Spawns says that an agent may ask a supervisor for agents, and command those that were started under it.
	Spawns bool
	// UserKey is the public key of the connection, the one that a revocation names.
	UserKey string
	// IssuedAt and Expires bound its life.
	IssuedAt, Expires time.Time
}

// Validate checks every name and every limit. Its error has code bad-request, or resource-exhausted for a list that is
// too long.
func (id Identity) Validate() error {
	if err := id.validateHolder(); err != nil {
		return err
	}
	for _, l := range []struct {
		name  string
		list  []string
		limit int
		check func(string) error
	}{
		{"subscribe list", id.Subscribe, MaxPatterns, wire.ValidatePattern},
		{"publish list", id.Publish, MaxPatterns, wire.ValidatePattern},
		{"commands", id.Commands, MaxCommands, id.checkCommand},
	} {
		if err := checkList(l.name, l.list, l.limit, l.check); err != nil {
			return err
		}
	}
	if _, err := deepDenies(id.Subscribe); err != nil && id.Profile == Agent {
		return err
	}
	if n := tagBytes(id.Tags()); n > MaxTagBytes {
		return exhausted(n, MaxTagBytes, "check identity of %q: its lists take %d bytes, limit %d", id.Principal, n, MaxTagBytes)
	}
	return nil
}

func (id Identity) validateHolder() error {
	if err := id.Lifecycle.Validate(); err != nil {
		return err
	}
	if !id.OwnerKnown() {
		return wire.Errorf(wire.CodeBadRequest, "check identity of %q: unknown form of owner", id.Principal)
	}
	if id.Principal == Supervisor.Principal() && id.Profile != Supervisor {
		return wire.Errorf(wire.CodeBadRequest, "check identity of %q: the name is that of the supervisors of the space, and not for profile %q", id.Principal, id.Profile)
	}
	if id.Inbox == "" || id.Inbox != string(id.UID) {
		return wire.Errorf(wire.CodeBadRequest, "check identity of %q: inbox %.64q is not its lifecycle uid", id.Principal, id.Inbox)
	}
	if id.Role != "" {
		if err := wire.ValidateRole(id.Role); err != nil {
			return err
		}
	}
	if !id.Profile.Lists() && (id.Role != "" || len(id.Subscribe)+len(id.Publish)+len(id.Commands) > 0) {
		return wire.Errorf(wire.CodeBadRequest, "check identity of %q: profile %q takes no role, channels or commands", id.Principal, id.Profile)
	}
	if id.Spawns && id.Profile != Agent {
		return wire.Errorf(wire.CodeBadRequest, "check identity of %q: profile %q starts no agents under itself", id.Principal, id.Profile)
	}
	if watcher := id.Profile == Profile(SystemWatcher); watcher != (id.Account != "") || watcher && !nkeys.IsValidPublicAccountKey(id.Account) {
		return wire.Errorf(wire.CodeBadRequest, "check identity of %q: %.64q is not the account of profile %q", id.Principal, id.Account, id.Profile)
	}
	if id.Instance != "" {
		if id.Profile != Supervisor {
			return wire.Errorf(wire.CodeBadRequest, "check identity of %q: profile %q serves as no instance", id.Principal, id.Profile)
		}
		if _, err := wire.ServeFilter(id.Space, wire.RailInst, wire.ManagerEndpoint, id.Instance); err != nil {
			return err
		}
	}
	if id.Space == "" {
		return SystemKind(id.Profile).Validate()
	}
	if id.Profile == Callout {
		return id.Space.Validate()
	}
	if _, err := ParseProfile(string(id.Profile)); err != nil {
		return err
	}
	return id.Space.Validate()
}

func (id Identity) checkCommand(c string) error {
	if err := validateCommand(c); err != nil {
		return err
	}
	if id.Profile == Agent && ReservedCommand(c) {
		return wire.Errorf(wire.CodePermissionDenied, "check identity of %q: command %q is never granted to profile %q; use an operator credential",
			id.Principal, c, id.Profile)
	}
	return nil
}

// validateCommand checks the form "<endpoint token>.<command>".
func validateCommand(c string) error {
	endpoint, command, ok := strings.Cut(c, ".")
	if !ok || wire.ValidateCommand(command) != nil || wire.ValidateEndpoint(strings.ReplaceAll(endpoint, "_", ".")) != nil {
		return wire.Errorf(wire.CodeBadRequest, "check command %.96q: not <endpoint>.<command>, with the dots of an endpoint name written as _", c)
	}
	return nil
}

func checkList(name string, list []string, limit int, check func(string) error) error {
	if len(list) > limit {
		return exhausted(len(list), limit, "check %s: %d entries, limit %d", name, len(list), limit)
	}
	for i, v := range list {
		if err := check(v); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if slices.Contains(list[:i], v) {
			return wire.Errorf(wire.CodeBadRequest, "check %s: %.96q is there twice", name, v)
		}
	}
	return nil
}

func exhausted(used, allowed int, format string, args ...any) error {
	e := wire.Errorf(wire.CodeResourceExhausted, format, args...)
	e.Details = map[string]any{"used": used, "allowed": allowed}
	return e
}

// deepDenies returns what the broker must be told to withhold from the holder of a subscribe list. A permission to subscribe
// to "x.*" also admits a subscription to "x.>", so for each such pattern "x.*.>" is withheld, unless another pattern grants
// all of it. A list that grants only a part of it cannot be held by the broker and is a bad-request.
func deepDenies(patterns []string) ([]string, error) {
	var out []string
	for _, p := range patterns {
		if p != "*" && !strings.HasSuffix(p, ".*") {
			continue
		}
		deep := p + ".>"
		if slices.ContainsFunc(patterns, func(o string) bool { return wire.PatternCovers(o, deep) }) {
			continue
		}
		if i := slices.IndexFunc(patterns, func(o string) bool { return overlap(o, deep) }); i >= 0 {
			return nil, wire.Errorf(wire.CodeBadRequest,
				"check subscribe list: the broker cannot hold %.96q next to %.96q; grant %.96q, or name the channels one by one", p, patterns[i], p[:len(p)-1]+">")
		}
		out = append(out, deep)
	}
	return out, nil
}

// overlap reports whether some channel matches both patterns.
func overlap(a, b string) bool {
	for {
		x, restA, moreA := strings.Cut(a, ".")
		y, restB, moreB := strings.Cut(b, ".")
		switch {
		case x == ">" || y == ">":
			return true
		case x != y && x != "*" && y != "*", moreA != moreB:
			return false
		case !moreA:
			return true
		}
		a, b = restA, restB
	}
}

// noDeny is the value of the "nosub" tag that withholds nothing: no channel has this name. The broker refuses a credential
// without the tag.
const noDeny = "="

// The prefixes of tags. "owner", "actor", "uid", "inbox", "role", "sub", "nosub", "pub", "cmd", "mgr", "eps", "account" and "instance" feed the
// templates; "space" and "profile" are there for people and for listings.
const (
	tagSpace   = "space:"
	tagProfile = "profile:"
	tagOwner   = "owner:"
	tagActor   = "actor:"
	tagUID     = "uid:"
	tagInbox   = "inbox:"
	tagRole    = "role:"
	tagSub     = "sub:"
	tagNoSub   = "nosub:"
	tagPub     = "pub:"
	tagCommand = "cmd:"
	tagManage  = "mgr:"
	tagSession = "eps:"
	tagAccount = "account:"
	tagServes  = "instance:"
)

// Tags returns the identity as the tags of a user JWT. They are assigned, never added: jwt.TagList.Add folds case.
func (id Identity) Tags() []string {
	tags := []string{tagProfile + string(id.Profile), tagOwner + id.Owner, tagActor + id.Actor, tagUID + string(id.UID), tagInbox + id.Inbox}
	if id.Space != "" {
		tags = append(tags, tagSpace+string(id.Space))
	}
	if id.Role != "" {
		tags = append(tags, tagRole+id.Role)
	}
	if id.Account != "" {
		tags = append(tags, tagAccount+id.Account)
	}
	if id.Instance != "" {
		tags = append(tags, tagServes+id.Instance)
	}
	var denies []string
	if id.Profile == Agent {
		denies, _ = deepDenies(id.Subscribe) // Validate refuses what has an error
		denies = append(denies, noDeny)
	}
	var manage, sessions []string
	if id.Spawns {
		manage, sessions = wire.ManagerCommands(), []string{wire.ManagerEndpoint}
	}
	for _, l := range []struct {
		prefix string
		values []string
	}{{tagSub, id.Subscribe}, {tagNoSub, denies}, {tagPub, id.Publish}, {tagCommand, id.Commands}, {tagManage, manage}, {tagSession, sessions}} {
		for _, v := range l.values {
			tags = append(tags, l.prefix+v)
		}
	}
	return tags
}

// Holder reads from the tags of a connection, as the broker lists them, whose it is.
//
// Errors: bad-request for tags that no credential of ours has.
func Holder(tags []string) (Profile, wire.Lifecycle, error) {
	var profile, owner, actor, uid string
	single := map[string]*string{tagProfile: &profile, tagOwner: &owner, tagActor: &actor, tagUID: &uid}
	for _, tag := range tags {
		name, value, _ := strings.Cut(tag, ":")
		field := single[name+":"]
		if field == nil {
			continue
		}
		if *field != "" {
			return "", wire.Lifecycle{}, wire.Errorf(wire.CodeBadRequest, "read tags: %q is there twice", name)
		}
		*field = value
	}
	l := wire.Lifecycle{Principal: wire.Principal{Owner: owner, Actor: actor}, UID: wire.UID(uid)}
	if profile == "" {
		return "", wire.Lifecycle{}, wire.Errorf(wire.CodeBadRequest, "read tags: no profile")
	}
	if err := l.Validate(); err != nil {
		return "", wire.Lifecycle{}, err
	}
	return Profile(profile), l, nil
}

func tagBytes(tags []string) int {
	text, err := json.Marshal(tags)
	if err != nil {
		return MaxTagBytes + 1 // cannot happen for strings; refuse
	}
	return len(text)
}

// identityOf reads a user JWT's claims. Unknown tags are ignored: a later minter may add some.
func identityOf(c *jwt.UserClaims) (Identity, error) {
	id := Identity{UserKey: c.Subject, IssuedAt: time.Unix(c.IssuedAt, 0).UTC(), Expires: time.Unix(c.Expires, 0).UTC()}
	var space, profile, uid string
	single := map[string]*string{
		tagSpace: &space, tagProfile: &profile, tagOwner: &id.Owner, tagActor: &id.Actor, tagUID: &uid, tagInbox: &id.Inbox, tagRole: &id.Role,
		tagAccount: &id.Account, tagServes: &id.Instance,
	}
	lists := map[string]*[]string{tagSub: &id.Subscribe, tagPub: &id.Publish, tagCommand: &id.Commands}
	for _, tag := range c.Tags {
		name, value, _ := strings.Cut(tag, ":")
		if list := lists[name+":"]; list != nil {
			*list = append(*list, value)
		}
		id.Spawns = id.Spawns || name+":" == tagManage
		if field := single[name+":"]; field != nil {
			if *field != "" || value == "" {
				return Identity{}, wire.Errorf(wire.CodeBadRequest, "read credential: tag %q is empty or there twice", name)
			}
			*field = value
		}
	}
	id.Space, id.Profile, id.UID = wire.Space(space), Profile(profile), wire.UID(uid)
	if c.Expires <= 0 || c.IssuedAt <= 0 || c.Expires <= c.IssuedAt {
		return Identity{}, wire.Errorf(wire.CodeBadRequest, "read credential of %q: it has no lifetime", id.Principal)
	}
	return id, id.Validate()
}

func (id Identity) clone() Identity {
	id.Subscribe, id.Publish, id.Commands = slices.Clone(id.Subscribe), slices.Clone(id.Publish), slices.Clone(id.Commands)
	return id
}
