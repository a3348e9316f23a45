package exchange

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// maxBody bounds the body of an exchange in bytes.
const maxBody = 64 << 10

// What a client of the form of RFC 8693 sends, section 2.1.
const (
	// GrantType is the grant_type.
	GrantType = "urn:ietf:params:oauth:grant-type:token-exchange"
	// TypeActorToken is the subject_token_type of the secret of an agent's last start. It is ours; those of a person's
	// token are id_token, jwt and access_token of RFC 8693 section 3.
	TypeActorToken = "urn:cotal:params:token-type:actor-token"

	typeIDToken     = "urn:ietf:params:oauth:token-type:id_token"
	typeJWT         = "urn:ietf:params:oauth:token-type:jwt"
	typeAccessToken = "urn:ietf:params:oauth:token-type:access_token"
)

// request is an exchange as both forms of it are read. The proof prints as an address.
type request struct {
	kind         Kind
	proof        func() string
	owner, actor string // of a person only the actor, which may be empty
	view         trust.View
	scope        []string // nil for all
	life         time.Duration
	dpop         []string // the DPoP headers
	form         bool
	issued       string // the token type that the form asks for
	// vouched is who it is when nobody has to prove it, and key what to bind the bearer to then.
	vouched *oidc.Claims
	key     ed25519.PublicKey
}

// mediaType returns the one content type of a request, or an error that says which are spoken.
func mediaType(h http.Header) (string, error) {
	lines := h.Values("Content-Type")
	if len(lines) == 1 && len(h.Values("Content-Encoding")) == 0 {
		kind, params, err := mime.ParseMediaType(lines[0])
		charset, given := params["charset"]
		if err == nil && (kind == typeJSON || kind == typeForm) && (!given || strings.EqualFold(charset, "utf-8")) {
			return kind, nil
		}
	}
	return "", bad("the body is not understood; send Content-Type %s, or %s with the parameters of RFC 8693", typeJSON, typeForm)
}

// jsonBody is the body of an exchange in its own form. Its members stand in the order in which our client writes them.
type jsonBody struct {
	IDPToken   *string  `json:"idpToken,omitempty"`
	Actor      *string  `json:"actor,omitempty"`
	Owner      *string  `json:"owner,omitempty"`
	ActorToken *string  `json:"actorToken,omitempty"`
	TTL        *int64   `json:"ttlSec,omitempty"`
	View       *string  `json:"view,omitempty"`
	Scope      []string `json:"scope,omitempty"`
}

var jsonMembers = []string{"idpToken", "actor", "owner", "actorToken", "ttlSec", "view", "scope"}

// decodeJSON reads a body. Its errors have code bad-request and quote no value.
func decodeJSON(data []byte) (request, error) {
	var b jsonBody
	err := wire.Decode(data, &b, maxBody)
	if err != nil || !b.writes(data) {
		if err := known(data); err != nil {
			return request{}, err
		}
	}
	if err != nil {
		if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && slices.Contains(jsonMembers, e.Field) {
			return request{}, bad("member %q has the wrong type", e.Field)
		}
		return request{}, bad("the body has a member of the wrong type")
	}
	req := request{scope: b.Scope, actor: text(b.Actor), owner: text(b.Owner)}
	if err := req.prove(text(b.IDPToken), text(b.ActorToken)); err != nil {
		return request{}, err
	}
	if err := req.lifetime(b.TTL); err != nil {
		return request{}, err
	}
	return req, req.check(text(b.View))
}

// writes reports whether data is how a body is written, so that it holds no member that is not known. It is what our client sends, and
// to see that costs half of what reading it once more does.
func (b *jsonBody) writes(data []byte) bool {
	again, err := json.Marshal(b)
	return err == nil && bytes.Equal(again, data)
}

// known refuses what is no object, and members that are not ours.
func known(data []byte) error {
	var members map[string]json.RawMessage
	if err := wire.Decode(data, &members, maxBody); err != nil || members == nil {
		return bad("the body is not one JSON object in UTF-8 in which no member is doubled")
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(jsonMembers, name) {
			return bad("unknown member %.64q; the members are %s", name, strings.Join(jsonMembers, ", "))
		}
	}
	return nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// prove takes exactly one of two proofs, and what belongs to it.
func (r *request) prove(idpToken, actorToken string) error {
	switch {
	case idpToken != "" && actorToken != "":
		return bad("two proofs at once; send the token of a login or the secret of an agent")
	case idpToken != "" && r.owner != "":
		return bad("a person's owner follows from the login; send no owner with it")
	case idpToken != "":
		r.kind, r.proof = KindPerson, func() string { return idpToken }
	case actorToken == "":
		return bad("no proof; a person sends idpToken, an agent sends owner, actor and actorToken")
	case r.owner == "" || r.actor == "":
		return bad("an agent names its owner and its actor beside actorToken")
	default:
		r.kind, r.proof = KindAgent, func() string { return actorToken }
	}
	return nil
}

// most is the longest life that the kind of proof gives.
func (r *request) most() time.Duration {
	if r.kind == KindPerson {
		return bearer.MaxHumanLife
	}
	return bearer.MaxAgentLife
}

func (r *request) lifetime(seconds *int64) error {
	r.life = r.most()
	if seconds == nil {
		return nil
	}
	if *seconds < 1 {
		return bad("ttlSec is not 1 to %d", int(r.most()/time.Second))
	}
	if *seconds < int64(r.most()/time.Second) {
		r.life = time.Duration(*seconds) * time.Second
	}
	return nil
}

// check looks at the names. Those of an agent are left to the authority: whatever is wrong with them is answered like a wrong
// secret.
func (r *request) check(view string) error {
	v, err := trust.ParseView(view)
	if err != nil {
		return bad("unknown view; the views are admin, purger, channel-writer and deployer")
	}
	r.view = v
	if r.kind == KindPerson && r.actor != "" && wire.ValidateActor(r.actor) != nil {
		return bad("the actor is not [A-Za-z0-9_]{1,%d}", wire.MaxToken)
	}
	if len(r.scope) > trust.MaxCommands {
		return badAs("invalid_scope", "the scope has %d entries, limit %d", len(r.scope), trust.MaxCommands)
	}
	for i, e := range r.scope {
		if trust.ValidateScope(e) != nil {
			return badAs("invalid_scope", "entry %d of the scope is none: use %s, %s, %s, role:<role> or <endpoint>.<command>", i+1,
				trust.ScopeSpawn, trust.ScopeAdmin, trust.ScopeSupervise)
		}
		if slices.Contains(r.scope[:i], e) {
			return badAs("invalid_scope", "entry %d of the scope is there twice", i+1)
		}
	}
	return nil
}

// decodeForm reads the form of RFC 8693 section 2.1 for a space. A parameter without a value counts as left out and one that
// is not known is ignored (RFC 6749 section 3.2); one of RFC 8693 that asks for what is not done here is refused. Its errors
// have code bad-request and quote no value.
func decodeForm(data []byte, s wire.Space) (request, error) {
	values, err := url.ParseQuery(string(data))
	if err != nil {
		return request{}, bad("the body is not a form")
	}
	f := form(values)
	if err := f.single(); err != nil {
		return request{}, err
	}
	switch grant := f.get("grant_type"); {
	case grant == "":
		return request{}, bad("no grant_type; send %s", GrantType)
	case grant != GrantType:
		return request{}, badAs("unsupported_grant_type", "this endpoint knows the grant_type %s only", GrantType)
	case f.get("actor_token") != "" || f.get("actor_token_type") != "":
		return request{}, bad("actor_token is not used here: an agent sends its secret as subject_token of type %s, with owner and actor", TypeActorToken)
	case f.get("resource") != "":
		return request{}, badAs("invalid_target", "bearers are for a space and not for a resource; send audience, or nothing")
	case f.get("audience") != "" && f.get("audience") != string(s):
		return request{}, badAs("invalid_target", "bearers of this exchange are for space %q only", s)
	}
	req := request{form: true, owner: f.get("owner"), actor: f.get("actor"), issued: f.get("requested_token_type")}
	if req.issued == "" {
		req.issued = typeJWT
	}
	if req.issued != typeJWT && req.issued != typeAccessToken {
		return request{}, bad("bearers are of requested_token_type %s or %s", typeJWT, typeAccessToken)
	}
	if err := req.subject(f.get("subject_token"), f.get("subject_token_type")); err != nil {
		return request{}, err
	}
	if scope := f.get("scope"); scope != "" {
		req.scope = strings.Split(scope, " ")
	}
	if err := req.lifetime(nil); err != nil {
		return request{}, err
	}
	return req, req.check(f.get("view"))
}

func (r *request) subject(token, kind string) error {
	switch kind {
	case "":
		return bad("no subject_token_type, or no subject_token: send both")
	case typeIDToken, typeJWT, typeAccessToken:
		if token == "" {
			return bad("no subject_token; send the token of a login")
		}
		return r.prove(token, "")
	case TypeActorToken:
		if token == "" {
			return bad("no subject_token; send the secret of the agent's last start")
		}
		return r.prove("", token)
	}
	return bad("unknown subject_token_type; use %s, %s or %s for a person, %s for an agent", typeIDToken, typeJWT, typeAccessToken, TypeActorToken)
}

// form is what a body of parameters says.
type form map[string][]string

// formMembers are the parameters that mean something here.
var formMembers = []string{
	"grant_type", "subject_token", "subject_token_type", "audience", "resource", "scope", "requested_token_type", "actor_token",
	"actor_token_type", "owner", "actor", "view",
}

// single refuses a parameter that is there twice (RFC 6749 section 3.2). RFC 8693 section 2.1 lets a client name several
// targets; none of them but one can be served.
func (f form) single() error {
	for _, name := range formMembers {
		switch {
		case len(f[name]) < 2:
		case name == "audience" || name == "resource":
			return badAs("invalid_target", "%s is there twice, and a bearer is for one space", name)
		default:
			return bad("parameter %s is there twice", name)
		}
	}
	return nil
}

func (f form) get(name string) string {
	if v := f[name]; len(v) == 1 {
		return v[0]
	}
	return ""
}
