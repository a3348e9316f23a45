package trust

import (
	"slices"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"

	"github.com/cotal-go/cotal/wire"
)

// This file is the one place where permissions are written. The broker replaces {{tag(x)}} by the values of tag x of
// the credential; a line whose tag is missing disappears. A value may hold dots and wildcards when it comes from
// a stolen signing key, so every line must be harmless for every value of its tags: a tag may only widen among
// subjects that agents of the space use anyway. What it could reach and must not is denied outright.

// The tags as templates name them.
const (
	tOwner   = "{{tag(owner)}}"
	tActor   = "{{tag(actor)}}"
	tUID     = "{{tag(uid)}}"
	tInbox   = "{{tag(inbox)}}"
	tRole    = "{{tag(role)}}"
	tSub     = "{{tag(sub)}}"
	tNoSub   = "{{tag(nosub)}}"
	tPub     = "{{tag(pub)}}"
	tCommand = "{{tag(cmd)}}"
	tManage  = "{{tag(mgr)}}"
	tSession = "{{tag(eps)}}"
	tServes  = "{{tag(instance)}}"
	tAccount = "{{tag(account)}}"

	self   = tOwner + "." + tActor              // the principal as subject tokens
	life   = self + "." + tUID                  // the lifecycle as subject tokens
	lifeID = tOwner + "-" + tActor + "-" + tUID // the lifecycle as the suffix of a durable
)

// Limits of a connection, by template.
const (
	// MaxAgentPayload bounds what an agent may publish at once: a message of wire.MaxMessage with its headers.
	MaxAgentPayload = 384 << 10
	// maxSubscriptions bounds the subscriptions of one connection: every pattern of a full list, and room.
	maxSubscriptions = 512
	// MaxSystemSubscriptions bounds those of a node's control, which follows every account that it serves.
	MaxSystemSubscriptions = 16384
)

// readCommands of endpoint delivery belong to everyone; ownCommands to members.
var (
	readCommands = []string{wire.CommandRoster, wire.CommandChannels, wire.CommandHistory, wire.CommandMemberships}
	ownCommands  = []string{wire.CommandJoin, wire.CommandLeave, wire.CommandPull, wire.CommandAck}
	// senderCommands belong to whoever may send.
	senderCommands = []string{wire.CommandReceipt, wire.CommandReach}
	// adminCommands read what is not the caller's.
	adminCommands = []string{wire.CommandTrace, wire.CommandInbox}
	// reservedCommands are never an agent's, whatever its credential asks for. Nor is any command of endpoint auth.
	reservedCommands = []string{
		wire.DeliveryEndpoint + "." + wire.CommandChannelSet, wire.DeliveryEndpoint + "." + wire.CommandEnrol, wire.DeliveryEndpoint + ".purge",
		wire.DeliveryEndpoint + "." + wire.CommandTrace, wire.DeliveryEndpoint + "." + wire.CommandInbox,
		wire.ManagerEndpoint + "." + wire.CommandInput,
	}
	// grantCommands of endpoint auth are a supervisor's alone.
	grantCommands = []string{
		wire.CommandAgentGrant, wire.CommandAgentStart, wire.CommandAgentRenew, wire.CommandAgentStop, wire.CommandAgentRetire,
		wire.CommandAgentGrants,
	}
)

// ReservedCommand reports whether "<endpoint>.<command>" cannot be granted to an agent: the broker denies it to
// the profile.
func ReservedCommand(command string) bool {
	return slices.Contains(reservedCommands, command) || strings.HasPrefix(command, wire.AuthorityEndpoint+".")
}

// Template returns the permissions of a profile in a space, with the tags left open. Its error has code bad-request.
func Template(p Profile, s wire.Space) (jwt.UserPermissionLimits, error) {
	if err := s.Validate(); err != nil {
		return jwt.UserPermissionLimits{}, err
	}
	b := builder{space: s, prefix: s.Prefix() + "."}
	switch p {
	case Agent:
		b.agent()
	case Observer:
		b.observer()
	case Admin:
		b.observer()
		b.delivery(adminCommands...)
	case Operator:
		b.operator()
	case Delivery:
		b.trustedReader()
	case Authority:
		b.authority()
	case Provisioner:
		b.provisioner()
	case Purger:
		b.purger()
	case Undertaker:
		b.undertaker()
	case Teardown:
		b.stream("STREAM.DELETE", streams(s)...)
		b.stream("STREAM.INFO", streams(s)...)
		b.pub("$JS.API.STREAM.NAMES")
	case Probe:
		b.asks()
		b.health()
	case ChannelWriter:
		b.asks()
		b.describe()
		b.delivery(readCommands...)
		b.delivery(wire.CommandChannelSet)
	case Deployer:
		b.asks()
		b.describe()
		b.health()
		b.manages("", wire.ManagerCommands()...)
		b.manages(string(wire.ModeOwner)+"."+tOwner+".", wire.ManagerCommands()...)
		b.attaches(wire.ManagerEndpoint, wire.ModeOwner)
	case Supervisor:
		b.supervisor()
	default:
		return jwt.UserPermissionLimits{}, wire.Errorf(wire.CodeBadRequest, "make template: unknown profile %.64q", string(p))
	}
	return b.limits(), nil
}

// SystemTemplate returns the permissions of a system kind. Its error has code bad-request.
func SystemTemplate(k SystemKind) (jwt.UserPermissionLimits, error) {
	var b builder
	switch k {
	case SystemControl:
		b.pub("$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.CLAIMS.DELETE", "$SYS.REQ.SERVER.*.KICK", NodeSubject("*"))
		b.systemReads()
		b.notices("*")
		b.subs = MaxSystemSubscriptions
	case SystemNode:
		b.sub(NodeSubject("*"))
		b.responses = &jwt.ResponsePermission{MaxMsgs: 1, Expires: 2 * time.Minute}
	case SystemObserver:
		b.systemReads()
	case SystemWatcher:
		// It does not end connections: a kick names a server and a number there, not an account.
		b.pub("$SYS.REQ.SERVER.PING", "$SYS.REQ.ACCOUNT."+tAccount+".CONNZ")
		b.notices(tAccount)
	default:
		return jwt.UserPermissionLimits{}, k.Validate()
	}
	return b.limits(), nil
}

// builder collects the lines of one template.
type builder struct {
	space              wire.Space
	prefix             string // "cotal.<space>."
	allowPub, allowSub []string
	denyPub, denySub   []string
	payload            int64
	subs               int64 // 0: maxSubscriptions
	responses          *jwt.ResponsePermission
}

func (b *builder) pub(subjects ...string) { b.allowPub = append(b.allowPub, subjects...) }
func (b *builder) sub(subjects ...string) { b.allowSub = append(b.allowSub, subjects...) }

// limits closes the template: the inbox for everyone, and "deny everything" where nothing was allowed.
func (b *builder) limits() jwt.UserPermissionLimits {
	b.sub(wire.InboxPrefix(tInbox) + ".>")
	out := jwt.UserPermissionLimits{
		Permissions: jwt.Permissions{
			Pub:  jwt.Permission{Allow: b.allowPub, Deny: b.denyPub},
			Sub:  jwt.Permission{Allow: b.allowSub, Deny: b.denySub},
			Resp: b.responses,
		},
		AllowedConnectionTypes: jwt.StringList{jwt.ConnectionTypeStandard, jwt.ConnectionTypeWebsocket, jwt.ConnectionTypeInProcess},
	}
	if len(b.allowPub) == 0 {
		out.Pub.Deny = jwt.StringList{">"}
	}
	out.NatsLimits = jwt.NatsLimits{Subs: maxSubscriptions, Data: jwt.NoLimit, Payload: jwt.NoLimit}
	if b.payload > 0 {
		out.Payload = b.payload
	}
	if b.subs > 0 {
		out.Subs = b.subs
	}
	return out
}

// speaks allows messages as the principal itself, to the channels of the pattern.
func (b *builder) speaks(channels string) {
	b.pub(b.prefix+"chat."+self+"."+channels, b.prefix+"inst.*.*."+self, b.prefix+"svc.*."+self,
		wire.RecordPrefix(wire.PresenceBucket(b.space))+self)
}

// asks allows the answers to the holder's own requests.
func (b *builder) asks() { b.sub(b.prefix + "ep.reply.*.*.*." + life + ".*") }

func (b *builder) health() {
	b.pub(b.prefix+"ep.one.*.health."+life+".*", b.prefix+"ep.all.*.health."+life+".*")
}

// manages allows commands of endpoint manager on every rail: on any instance, on all of them, and on one that is named. The mode is
// empty, or a mode with its target and a dot.
func (b *builder) manages(mode string, commands ...string) {
	const e = wire.ManagerEndpoint
	for _, rail := range []string{"ep.one." + e + ".", "ep.all." + e + ".", "ep.inst." + e + ".*."} {
		for _, c := range commands {
			b.pub(b.prefix + rail + c + "." + mode + life + ".*")
		}
	}
}

// attaches allows the bytes of the sessions of an endpoint that were offered to the holder's life, for a request without a mode or with
// one of those. The modes have subjects of their own, which no tag reaches: whoever loses them loses what was opened under them.
func (b *builder) attaches(endpoint string, modes ...wire.Mode) {
	kinds := []string{"eps."}
	for _, m := range modes {
		kinds = append(kinds, "epm."+string(m)+".")
	}
	for _, kind := range kinds {
		session := b.prefix + kind + endpoint + ".*." + tUID
		b.pub(session + ".in")
		b.sub(session + ".out")
	}
}

// denyModes denies commands that name whom they act on by one of the modes, on every rail. No owner has these names.
func (b *builder) denyModes(endpoint string, modes ...wire.Mode) {
	for _, m := range modes {
		for _, rail := range []string{"ep.one.", "ep.all."} {
			b.denyPub = append(b.denyPub, b.prefix+rail+endpoint+".*."+string(m)+".>")
		}
		b.denyPub = append(b.denyPub, b.prefix+"ep.inst."+endpoint+".*.*."+string(m)+".>")
	}
}

// supervisor serves endpoint manager, asks the authority for the grants of its agents, and reads who is there. It speaks for
// nobody, and reads no stream. It answers and tells events as the instance of its credential, and hears what names that one.
func (b *builder) supervisor() {
	const e = wire.ManagerEndpoint
	b.pub(b.prefix+"ep.reply."+e+"."+tServes+".>", b.prefix+"epe."+e+"."+tServes+".>", b.prefix+"eps."+e+".*.*.out", b.prefix+"epm.*."+e+".*.*.out")
	b.sub(b.prefix+"ep.one."+e+".>", b.prefix+"ep.all."+e+".>", b.prefix+"ep.inst."+e+"."+tServes+".>", b.prefix+"eps."+e+".*.*.in",
		b.prefix+"epm.*."+e+".*.*.in")
	b.event(e, wire.TopicPeer)
	b.event(e, wire.TopicAgents)
	for _, c := range grantCommands {
		b.pub(b.prefix + "ep.one." + wire.AuthorityEndpoint + "." + c + "." + life + ".*")
	}
	b.asks()
	b.describe()
	b.health()
	b.delivery(wire.CommandRoster)
	b.event(wire.DeliveryEndpoint, wire.TopicRoster)
}

func (b *builder) describe() { b.pub(b.prefix + "ep.one.*.describe." + life + ".*") }

// delivery allows untargeted commands of endpoint delivery.
func (b *builder) delivery(commands ...string) {
	for _, c := range commands {
		b.pub(b.prefix + "ep.one." + wire.DeliveryEndpoint + "." + c + "." + life + ".*")
	}
}

// queue allows pulling from, and acknowledging to, a durable that somebody else made.
func (b *builder) queue(stream, durable string) {
	b.pub("$JS.API.CONSUMER.MSG.NEXT."+stream+"."+durable, "$JS.API.CONSUMER.INFO."+stream+"."+durable,
		"$JS.ACK."+stream+"."+durable+".>")
}

// stream allows a verb of the JetStream API on whole streams.
func (b *builder) stream(verb string, names ...string) {
	for _, n := range names {
		b.pub("$JS.API." + verb + "." + n)
	}
}

// read allows point reads of a stream, of any of its subjects.
func (b *builder) read(names ...string) {
	b.stream("STREAM.INFO", names...)
	for _, n := range names {
		b.pub("$JS.API.DIRECT.GET."+n, "$JS.API.DIRECT.GET."+n+".>", "$JS.API.STREAM.MSG.GET."+n)
	}
}

// write allows putting and deleting any key of buckets.
func (b *builder) write(buckets ...string) {
	for _, name := range buckets {
		b.pub(wire.RecordPrefix(name) + ">")
	}
}

func (b *builder) event(endpoint, topic string) {
	b.sub(b.prefix + "epe." + endpoint + ".*.*." + topic)
}

func (b *builder) agent() {
	b.payload = MaxAgentPayload
	b.speaks(tPub)
	b.queue(wire.DirectStream(b.space), "dm_"+lifeID)
	b.queue(wire.RoleStream(b.space), wire.RoleDurable(tRole))
	b.describe()
	b.health()
	b.delivery(readCommands...)
	b.delivery(ownCommands...)
	b.delivery(senderCommands...)
	b.pub(b.prefix+"ep.one.manager.stop.self."+life+".*", b.prefix+"ep.inst.manager.*.stop.self."+life+".*", b.prefix+"ep.one."+tCommand+"."+life+".*")
	b.manages("", tManage)
	b.attaches(tSession)
	b.denyAgents()
	b.asks()
	b.sub(b.prefix + "live.*.*." + tSub)
	// The broker lets who may subscribe to "x.*" subscribe to "x.>" too. What that reaches beyond is denied here, by a tag
	// that every agent has; see deepDenies.
	b.denySub = append(b.denySub, b.prefix+"live.*.*."+tNoSub)
	b.sub(b.prefix + "dlv." + life)
	b.event(wire.DeliveryEndpoint, wire.TopicRoster)
	b.event(wire.DeliveryEndpoint, wire.TopicReceipt+"."+self)
	b.event("*", "goal."+life+".>")
	b.event("*", "session."+life+".>")
}

// denyAgents is what no agent reaches, whatever its tags are.
func (b *builder) denyAgents() {
	for _, c := range reservedCommands {
		b.denyPub = append(b.denyPub, b.prefix+"ep.one."+c+".>")
	}
	b.denyPub = append(b.denyPub, b.prefix+"ep.all."+wire.ManagerEndpoint+"."+wire.CommandInput+".>",
		b.prefix+"ep.inst."+wire.ManagerEndpoint+".*."+wire.CommandInput+".>")
	for _, rail := range []string{"ep.one.", "ep.all.", "ep.inst."} {
		b.denyPub = append(b.denyPub, b.prefix+rail+wire.AuthorityEndpoint+".>")
	}
	// Modes that reach beyond what is the caller's own.
	b.denyModes("*", wire.ModeAny, wire.ModeExact, wire.ModeOwner)
	// A uid that is a wildcard would take in the sessions of all. No session has the uid of a life for its name, so for a life that is
	// one this withholds nothing, and for a wildcard every session.
	b.denyPub = append(b.denyPub, b.prefix+"eps.*."+tUID+".>")
	b.denySub = append(b.denySub, b.prefix+"eps.*."+tUID+".>")
}

func (b *builder) observer() {
	b.describe()
	b.health()
	b.delivery(readCommands...)
	b.asks()
	b.sub(b.prefix + "live.>")
	b.event(wire.DeliveryEndpoint, wire.TopicRoster)
	b.event(wire.DeliveryEndpoint, wire.TopicMembership)
}

func (b *builder) operator() {
	b.payload = MaxAgentPayload
	b.speaks(">")
	b.describe()
	b.health()
	b.delivery(readCommands...)
	b.delivery(senderCommands...)
	b.delivery(adminCommands...)
	b.delivery(wire.CommandChannelSet)
	b.pub(b.prefix + "ep.one.*.*." + string(wire.ModeAny) + ".*." + life + ".*")
	b.manages(string(wire.ModeAny)+".*.", "*")
	b.denyModes(wire.AuthorityEndpoint, wire.ModeAny)
	b.attaches(wire.ManagerEndpoint, wire.ModeOwner, wire.ModeAny)
	b.asks()
}

// trustedReader reads every message and record of the space, and writes nothing but its own records, pointers to
// mentions, answers and events: it speaks for nobody.
func (b *builder) trustedReader() {
	s := b.space
	chat, direct, role, presence := wire.ChatStream(s), wire.DirectStream(s), wire.RoleStream(s), kvStream(wire.PresenceBucket(s))
	mention, dead := wire.MentionStream(s), wire.DeadStream(s)
	own := []string{wire.ChannelsBucket(s), wire.MembersBucket(s), wire.CursorsBucket(s)}
	b.stream("STREAM.INFO", chat, direct, role, mention, dead, presence)
	for _, n := range []string{chat, direct, role, mention, dead, presence} {
		b.pub("$JS.API.DIRECT.GET."+n, "$JS.API.DIRECT.GET."+n+".>")
	}
	b.pub("$JS.API.CONSUMER.INFO."+direct+".*", "$JS.API.CONSUMER.INFO."+role+".*")
	// A copy of a stream may lag; what a member has to go on from is what the leader knows.
	b.stream("STREAM.MSG.GET", chat, mention, kvStream(wire.AuthorityBucket(s)))
	for _, bucket := range own {
		b.read(kvStream(bucket))
	}
	b.write(own...)
	// A membership that is over leaves no record.
	b.stream("STREAM.MSG.DELETE", kvStream(wire.MembersBucket(s)), kvStream(wire.CursorsBucket(s)))
	const e = wire.DeliveryEndpoint
	b.pub(wire.MentionRecords(s)+"*.*.*", b.prefix+"ep.reply."+e+".>", b.prefix+"epe."+e+".>")
	b.sub(b.prefix+"ep.one."+e+".>", b.prefix+"ep.all."+e+".>", b.prefix+"ep.inst."+e+".>",
		wire.RecordPrefix(wire.PresenceBucket(s))+"*.*", wire.RecordPrefix(wire.ChannelsBucket(s))+">",
		wire.RecordPrefix(wire.MembersBucket(s))+">", b.prefix+"live.>", advisories+"*."+direct+".*", advisories+"*."+role+".*")
}

// advisories is where the broker tells what happens to the messages of a consumer, followed by what, stream and consumer.
const advisories = "$JS.EVENT.ADVISORY.CONSUMER."

// authority keeps grants and the queues of their holders, and takes away what is left of a life that ended. It answers the
// supervisors.
func (b *builder) authority() {
	s := b.space
	const e = wire.AuthorityEndpoint
	b.pub(b.prefix+"ep.reply."+e+".>", b.prefix+"epe."+e+".>")
	b.sub(b.prefix+"ep.one."+e+".>", b.prefix+"ep.all."+e+".>", b.prefix+"ep.inst."+e+".>")
	b.write(wire.AuthorityBucket(s), wire.MembersBucket(s))
	for _, bucket := range []string{wire.AuthorityBucket(s), wire.MembersBucket(s), wire.CursorsBucket(s)} {
		b.stream("STREAM.INFO", kvStream(bucket))
		b.stream("STREAM.MSG.GET", kvStream(bucket))
	}
	b.stream("STREAM.MSG.DELETE", kvStream(wire.MembersBucket(s)), kvStream(wire.CursorsBucket(s)))
	// What was decided is written down, and read by nobody else.
	b.pub(wire.AuditRecords(s) + "*.*.*.*")
	b.stream("STREAM.INFO", wire.AuditStream(s))
	b.stream("STREAM.MSG.GET", wire.AuditStream(s))
	for _, n := range []string{wire.DirectStream(s), wire.RoleStream(s)} {
		b.stream("STREAM.INFO", n)
		b.pub("$JS.API.CONSUMER.CREATE."+n, "$JS.API.CONSUMER.CREATE."+n+".>", "$JS.API.CONSUMER.DURABLE.CREATE."+n+".*",
			"$JS.API.CONSUMER.INFO."+n+".*", "$JS.API.CONSUMER.DELETE."+n+".*", "$JS.API.CONSUMER.NAMES."+n, "$JS.API.CONSUMER.LIST."+n)
	}
	// The build before made queues of mention pointers; they are taken away.
	mention := wire.MentionStream(s)
	b.stream("STREAM.INFO", mention)
	b.pub("$JS.API.CONSUMER.NAMES."+mention, "$JS.API.CONSUMER.DELETE."+mention+".*")
}

// purger empties channels and queues. It says so where the members of a channel read it.
func (b *builder) purger() {
	s := b.space
	streams := []string{wire.ChatStream(s), wire.DirectStream(s), wire.RoleStream(s)}
	b.stream("STREAM.PURGE", streams...)
	b.stream("STREAM.INFO", streams...)
	cursors := wire.CursorsBucket(s)
	b.stream("STREAM.MSG.GET", kvStream(cursors))
	b.pub(wire.RecordPrefix(cursors) + wire.ClearedKey + ".*")
}

// undertaker looks after dead letters: it reads the queues, removes from them, and puts a message back under the subject
// that it had.
func (b *builder) undertaker() {
	s := b.space
	direct, role, dead := wire.DirectStream(s), wire.RoleStream(s), wire.DeadStream(s)
	for _, n := range []string{direct, role, dead} {
		b.read(n)
		b.stream("STREAM.MSG.DELETE", n)
	}
	// Whether a queue was handed the message of a notice.
	b.pub("$JS.API.CONSUMER.INFO."+direct+".*", "$JS.API.CONSUMER.INFO."+role+".*")
	b.pub(wire.DeadMarks(s)+"*", b.prefix+"inst.*.*.*.*", b.prefix+"svc.*.*.*")
}

func (b *builder) provisioner() {
	all := streams(b.space)
	for _, verb := range []string{"STREAM.CREATE", "STREAM.UPDATE", "STREAM.INFO"} {
		b.stream(verb, all...)
	}
	// A creation that meets a limit takes back what it made.
	b.stream("STREAM.DELETE", all...)
	channels := wire.ChannelsBucket(b.space)
	b.pub("$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.MSG.GET."+kvStream(channels), wire.RecordPrefix(channels)+wire.DefaultsKey)
}

func (b *builder) systemReads() {
	b.pub("$SYS.REQ.CLAIMS.LIST", "$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP", "$SYS.REQ.ACCOUNT.*.CONNZ",
		"$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.CONNZ")
}

// notices allows following who connects to an account and whose connections end.
func (b *builder) notices(account string) {
	b.sub("$SYS.ACCOUNT."+account+".CONNECT", "$SYS.ACCOUNT."+account+".DISCONNECT")
}

func kvStream(bucket string) string { return "KV_" + bucket }

// streams are all streams of a space, those under its buckets included.
func streams(s wire.Space) []string {
	return []string{
		wire.ChatStream(s), wire.DirectStream(s), wire.RoleStream(s), wire.MentionStream(s), wire.DeadStream(s),
		wire.AuditStream(s), kvStream(wire.PresenceBucket(s)), kvStream(wire.ChannelsBucket(s)), kvStream(wire.MembersBucket(s)),
		kvStream(wire.CursorsBucket(s)), kvStream(wire.AuthorityBucket(s)),
	}
}
