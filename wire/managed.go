package wire

// AuthorityEndpoint is the reserved name of the endpoint by which a supervisor asks the authority for the grants of its agents.
const AuthorityEndpoint = "auth"

// Commands of the auth endpoint. All are called by supervisors alone, without a target, on the "one" rail.
const (
	CommandAgentGrant  = "agent-grant"  // AgentGrantRequest, AgentCredential
	CommandAgentStart  = "agent-start"  // AgentStartRequest, AgentCredential
	CommandAgentRenew  = "agent-renew"  // AgentStartRequest, AgentCredential
	CommandAgentStop   = "agent-stop"   // AgentStopRequest, no result
	CommandAgentRetire = "agent-retire" // AgentRequest, no result
	CommandAgentGrants = "agent-grants" // AgentGrantsRequest, AgentGrantsReply
)

// AgentGrantRequest grants a managed agent. Its owner is that of the parent, and "local" without one, which an operator alone has
// asked for. It holds nothing beyond the parent.
//
// No secret crosses the wire: in a space of credential files the supervisor sends the public key that it made for the agent, and in a
// space of people the hash of the secret that it made.
//
// It may be repeated: while the grant stands with the same parent, lists and proof, the same credential is the answer.
type AgentGrantRequest struct {
	Actor     string     `json:"actor"`
	Parent    string     `json:"parent,omitempty"` // principal
	ParentUID UID        `json:"parentUid,omitempty"`
	Owner     string     `json:"owner,omitempty"` // without a parent: whose it is; default "local"
	Role      string     `json:"role,omitempty"`
	Subscribe []string   `json:"subscribe"` // what it may read
	Publish   []string   `json:"publish"`
	Scope     []string   `json:"scope"` // spawn, role:<role>, <endpoint>.<command>
	Label     string     `json:"label,omitempty"`
	By        string     `json:"by,omitempty"` // who asked, for the audit
	Proof     AgentProof `json:"proof"`
}

// AgentProof is what the agent will prove itself by. The supervisor sends both, since only the authority knows which is used.
type AgentProof struct {
	// UserKey is a public user nkey (U…), of one credential: each start and each renewal brings a fresh one. The same one again is
	// answered with the same credential, of the same end.
	UserKey string `json:"userKey"`
	// TokenHash is the lower-case hex SHA-256 of the agent's secret, which is of one start: a start brings a fresh one, a renewal
	// that of its start.
	TokenHash string `json:"tokenHash"`
}

// AgentStartRequest names a life and what it proves itself by from now on. A start refuses what proved it before and ends what was
// open under that; a renewal leaves both alone.
type AgentStartRequest struct {
	Principal string `json:"principal"`
	UID       UID    `json:"uid"`
	// Start numbers the start among those of the life: each later one has a higher number, from 1 on. That of the grant is 0, and a
	// renewal has none. One that comes after a later start, or after its own stop, is refused: it was under way for long.
	Start uint64     `json:"start,omitempty"`
	Proof AgentProof `json:"proof"`
}

// AgentStopRequest ends a start, and those before it. When a later one has come meanwhile, it is over already and nothing is done.
type AgentStopRequest struct {
	Principal string `json:"principal"`
	UID       UID    `json:"uid"`
	Start     uint64 `json:"start,omitempty"` // as in AgentStartRequest
}

// AgentRequest names a life.
type AgentRequest struct {
	Principal string `json:"principal"`
	UID       UID    `json:"uid"`
}

// AgentCredential is what an agent starts with. Exactly one of JWT and Exchange is set.
type AgentCredential struct {
	Principal string `json:"principal"`
	UID       UID    `json:"uid"`
	// JWT is the user JWT for the key of the proof, in a space of credential files.
	JWT     string `json:"jwt,omitempty"`
	Expires int64  `json:"expires,omitempty"` // of the JWT, ms since 1970
	// Exchange says that the agent gets bearers for its secret at the space's token exchange.
	Exchange bool `json:"exchange,omitempty"`
}

// AgentGrantsRequest asks for a page of the managed grants that stand, by principal.
type AgentGrantsRequest struct {
	After string `json:"after,omitempty"` // the last principal of the page before; empty for the first page
}

// AgentGrantsReply is a page.
type AgentGrantsReply struct {
	Agents []ManagedGrant `json:"agents"`
	More   bool           `json:"more,omitempty"` // there is a page after it
}

// ManagedGrant is one of them.
type ManagedGrant struct {
	Principal string   `json:"principal"`
	UID       UID      `json:"uid"`
	Parent    string   `json:"parent,omitempty"`
	ParentUID UID      `json:"parentUid,omitempty"`
	Label     string   `json:"label,omitempty"`
	Started   bool     `json:"started"` // it was started and not stopped since
	Subscribe []string `json:"subscribe"`
	Publish   []string `json:"publish"`
	Scope     []string `json:"scope"`
}
