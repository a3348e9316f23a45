package trust

import (
	"slices"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// Profile is a named set of permissions. Each has its own scoped signing key on the account of a space.
type Profile string

// The profiles of a space.
const (
	// Agent speaks as one principal and reads what its lists name.
	Agent Profile = "agent"
	// Observer reads every channel and the roster, and says nothing.
	Observer Profile = "observer"
	// Admin is an observer that may also trace messages and read inboxes through delivery. A deliberate opt-in.
	Admin Profile = "admin"
	// Operator acts for a person at a terminal: messages as itself anywhere, control commands on anything.
	Operator Profile = "operator"
	// Delivery is the trusted reader of a space.
	Delivery Profile = "delivery"
	// Authority writes grants and makes the durables of members.
	Authority Profile = "authority"
	// Provisioner creates and reconciles the streams and buckets of a space.
	Provisioner Profile = "provisioner"
	// Purger empties the channel and direct message streams.
	Purger Profile = "purger"
	// Undertaker requeues and drops dead letters.
	Undertaker Profile = "undertaker"
	// Teardown deletes the streams and buckets of a space.
	Teardown Profile = "teardown"
	// Probe asks endpoints for their health.
	Probe Profile = "probe"
	// ChannelWriter changes the settings of channels through delivery.
	ChannelWriter Profile = "channel-writer"
	// Deployer brings the caller's own teams up and down through the supervisor.
	Deployer Profile = "deployer"
	// Supervisor starts and keeps the agents of a space. It holds no signing key, speaks as nobody and reads no stream.
	Supervisor Profile = "supervisor"
)

// MaxLifetime is the longest life of any credential. A revocation whose credential is not known is kept this long.
const MaxLifetime = 30 * 24 * time.Hour

// Lifetime is how long credentials of a profile live.
type Lifetime struct {
	// Default applies when none is asked for.
	Default time.Duration
	// Max is refused beyond.
	Max time.Duration
}

var lifetimes = map[Profile]Lifetime{
	Agent:       {24 * time.Hour, MaxLifetime},
	Observer:    {12 * time.Hour, 7 * 24 * time.Hour},
	Admin:       {12 * time.Hour, 24 * time.Hour},
	Operator:    {15 * time.Minute, 12 * time.Hour},
	Delivery:    {24 * time.Hour, 48 * time.Hour},
	Authority:   {24 * time.Hour, 48 * time.Hour},
	Supervisor:  {24 * time.Hour, 48 * time.Hour},
	Provisioner: {5 * time.Minute, 30 * time.Minute},
	Purger:      {5 * time.Minute, 30 * time.Minute},
	Undertaker:  {5 * time.Minute, 30 * time.Minute},
	Teardown:    {5 * time.Minute, 30 * time.Minute},
	Probe:       {time.Minute, 10 * time.Minute},

	ChannelWriter: {5 * time.Minute, 30 * time.Minute},
	Deployer:      {15 * time.Minute, 12 * time.Hour},

	Callout: {24 * time.Hour, 48 * time.Hour},

	Profile(SystemControl):  {time.Hour, 24 * time.Hour},
	Profile(SystemNode):     {time.Hour, 24 * time.Hour},
	Profile(SystemObserver): {time.Hour, 24 * time.Hour},
	Profile(SystemWatcher):  {time.Hour, 24 * time.Hour},
}

// Profiles returns every profile of a space, in a fixed order.
func Profiles() []Profile {
	return []Profile{Agent, Observer, Admin, Operator, Delivery, Authority, Provisioner, Purger, Undertaker, Teardown, Probe, ChannelWriter, Deployer, Supervisor}
}

// ParseProfile checks the name of a profile of a space. Its error has code bad-request: an unknown profile never
// falls back to another.
func ParseProfile(s string) (Profile, error) {
	if p := Profile(s); slices.Contains(Profiles(), p) {
		return p, nil
	}
	return "", wire.Errorf(wire.CodeBadRequest, "parse profile %.64q: not one of %q", s, Profiles())
}

// Lifetime returns the default and the longest life of the profile's credentials; zero for an unknown profile, which
// permits none.
func (p Profile) Lifetime() Lifetime { return lifetimes[p] }

// Lists says whether credentials of the profile name channel patterns, control commands and a role.
func (p Profile) Lists() bool {
	return p == Agent || p == Observer || p == Admin || p == Operator
}

// Starts reports whether a holder of the profile may start agents: an agent with scope spawn does so under itself, an operator under
// nobody, a deployer under its owner. Nobody else has agents below.
func (p Profile) Starts() bool { return p == Agent || p == Operator || p == Deployer }

// Principal is the name that the deployment's own processes of the profile speak by. The authority knows a supervisor by it, so it
// grants that one to nobody, and no credential of another profile has it.
func (p Profile) Principal() wire.Principal {
	return wire.Principal{Owner: wire.LocalOwner, Actor: string(p)}
}

// SystemKind is a named set of permissions in the broker's system account. Each has its own scoped signing key.
type SystemKind string

// The kinds of system credentials.
const (
	// SystemControl pushes, reads and removes accounts, lists and ends connections, and asks a node for commands.
	SystemControl SystemKind = "system-control"
	// SystemNode answers the commands of a node.
	SystemNode SystemKind = "system-node"
	// SystemObserver reads accounts, servers and connections, and changes nothing.
	SystemObserver SystemKind = "system-observer"
	// SystemWatcher lists and follows the connections of one account, and reaches nothing of another.
	SystemWatcher SystemKind = "system-watcher"
)

// SystemKinds returns every system kind, in a fixed order.
func SystemKinds() []SystemKind {
	return []SystemKind{SystemControl, SystemNode, SystemObserver, SystemWatcher}
}

// Profile returns the kind as the profile that credentials carry.
func (k SystemKind) Profile() Profile { return Profile(k) }

// Validate reports an unknown kind as bad-request.
func (k SystemKind) Validate() error {
	if !slices.Contains(SystemKinds(), k) {
		return wire.Errorf(wire.CodeBadRequest, "parse system kind %.64q: not one of %q", string(k), SystemKinds())
	}
	return nil
}

// NodeSubject is the subject of the system account on which a node answers a command; "*" stands for all of them.
// Only credentials of the system account reach it, so it cannot meet the subjects of a space.
func NodeSubject(verb string) string { return wire.Root + ".node." + verb }
