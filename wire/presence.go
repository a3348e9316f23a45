package wire

// Status is what a participant says it is doing.
type Status string

// The statuses. Nobody heartbeats as offline: it is written once by a graceful close, and derived by observers from a
// record older than LivenessWindow or gone.
const (
	StatusIdle    Status = "idle"
	StatusWaiting Status = "waiting"
	StatusWorking Status = "working"
	StatusOffline Status = "offline"
)

// The attention modes of Presence.Attention and the channel modes of Presence.ChannelModes. They advise peers; the broker
// delivers as before.
const (
	AttentionOpen  = "open"
	AttentionDND   = "dnd"
	AttentionFocus = "focus"

	ChannelQuiet = "quiet"
	ChannelMuted = "muted"
)

// The kinds of Card.Kind.
const (
	CardAgent    = "agent"    // acts on its own
	CardEndpoint = "endpoint" // an observer, a logger, a dashboard
)

// Presence is one participant's record in the presence bucket. The broker vouches for the key it is stored under;
// everything in the record is the participant's claim.
type Presence struct {
	Card         Card              `json:"card"`
	Status       Status            `json:"status"`
	Activity     string            `json:"activity,omitempty"`     // free text
	Attention    string            `json:"attention,omitempty"`    // open, dnd or focus; none is open
	ChannelModes map[string]string `json:"channelModes,omitempty"` // channel to quiet or muted
	Condition    *Condition        `json:"condition,omitempty"`
	LifecycleUID UID               `json:"lifecycleUid"` // which life of the principal; for display, authority never reads it here
	TS           int64             `json:"ts"`           // milliseconds since 1970 of the last heartbeat
}

// Card says who a participant is.
type Card struct {
	ID              string         `json:"id"`   // dot form of the principal, equal to the record's key
	Name            string         `json:"name"` // display name, 1 to 128 characters
	Kind            string         `json:"kind"` // agent or endpoint
	Role            string         `json:"role,omitempty"`
	Description     string         `json:"description,omitempty"`
	Tags            []string       `json:"tags,omitempty"`
	Skills          []Skill        `json:"skills,omitempty"`
	Meta            map[string]any `json:"meta,omitempty"` // advisory, for display
	ProtocolVersion string         `json:"protocolVersion,omitempty"`
}

// Skill is one thing a participant says it can do.
type Skill struct {
	ID          string `json:"id"`   // not empty
	Name        string `json:"name"` // not empty, for display
	Description string `json:"description,omitempty"`
}

// Condition is something a participant's harness reported, such as a rate limit. It is relayed, never inferred.
type Condition struct {
	Code    string `json:"code"`             // one word of [a-z0-9_-], at most 64 bytes; readers ignore one they do not know
	Source  string `json:"source,omitempty"` // the harness's own value
	Message string `json:"message,omitempty"`
	Since   int64  `json:"since,omitempty"` // milliseconds since 1970
}

// DecodePresence decodes the record stored under a key and checks it, the equality of key and card.id included. Errors
// have code bad-request and ReasonJSON, or code sender-mismatch and ReasonSender when the record names another than its
// key.
func DecodePresence(key string, data []byte) (*Presence, error) {
	if what := checkNested(data, MaxNestedDepth-MaxDepth, MaxPresence); what != "" {
		return nil, malformed(ReasonJSON, "decode presence: %s", what)
	}
	p := new(Presence)
	if err := Decode(data, p, MaxPresence); err != nil {
		return nil, err
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if p.Card.ID != key {
		return nil, malformedAs(CodeSenderMismatch, ReasonSender, "decode presence: card is of %q, key of %q", clip(p.Card.ID), clip(key))
	}
	return p, nil
}

// Validate reports whether p is a presence record of the contract. Its error has code bad-request and ReasonJSON.
func (p *Presence) Validate() error {
	if what := p.check(); what != "" {
		return malformed(ReasonJSON, "check presence: %s", what)
	}
	return nil
}

func (p *Presence) check() string {
	if what := p.Card.check(); what != "" {
		return what
	}
	switch p.Status {
	case StatusIdle, StatusWaiting, StatusWorking, StatusOffline:
	default:
		return "status is not idle, waiting, working or offline"
	}
	switch p.Attention {
	case "", AttentionOpen, AttentionDND, AttentionFocus:
	default:
		return "attention is not open, dnd or focus"
	}
	for ch, mode := range p.ChannelModes {
		if !channelOK(ch, false) || mode != ChannelQuiet && mode != ChannelMuted {
			return "channelModes does not map channels to quiet or muted"
		}
	}
	switch {
	case p.Condition != nil && !conditionCodeOK(p.Condition.Code):
		return "condition code is not one word of [a-z0-9_-]"
	case p.LifecycleUID.Validate() != nil:
		return "lifecycleUid is not a uid"
	case p.TS <= 0 || p.TS > maxInteger:
		return "ts is not from 1 to 2^53-1"
	}
	return ""
}

func (c *Card) check() string {
	p, err := ParsePrincipal(c.ID)
	switch {
	case err != nil || !p.OwnerKnown():
		return "card id is not a principal of a known owner"
	case !nameOK(c.Name, false):
		return "card name is not 1 to 128 characters"
	case c.Kind != CardAgent && c.Kind != CardEndpoint:
		return "card kind is not agent or endpoint"
	case c.Role != "" && !inClass(c.Role, classToken, MaxToken):
		return "card role is not a role"
	}
	for _, s := range c.Skills {
		if s.ID == "" || s.Name == "" {
			return "a skill has no id or no name"
		}
	}
	return ""
}

func conditionCodeOK(code string) bool {
	if len(code) == 0 || len(code) > MaxToken {
		return false
	}
	for i := range len(code) {
		if code[i] != '_' && charClass[code[i]]&classLabel == 0 {
			return false
		}
	}
	return true
}
