package idptest

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const zitadelRefreshLife = 24 * time.Hour

// A zitadelStore is what the zitadel library wants kept: keys, users, device codes, tokens.
type zitadelStore struct {
	client zitadelClient
	aud    string
	life   time.Duration

	mu      sync.Mutex // guards what follows
	keys    []*zitadelKey
	users   map[string]string         // the sub of each
	devices map[string]*zitadelDevice // by device code
	access  map[string]zitadelToken   // by ID
	refresh map[string]zitadelToken   // by the token itself
}

type zitadelDevice struct {
	userCode string
	state    op.DeviceAuthorizationState
}

// A zitadelToken is what was granted, and until when.
type zitadelToken struct {
	granted zitadelGrant
	expires time.Time
}

// A zitadelGrant is what a refresh token stands for.
type zitadelGrant struct {
	subject, clientID string
	audience, scopes  []string
	authTime          time.Time
}

var (
	_ op.Storage                    = (*zitadelStore)(nil)
	_ op.DeviceAuthorizationStorage = (*zitadelStore)(nil)
	_ op.RefreshTokenRequest        = (*zitadelGrant)(nil)
)

func (g *zitadelGrant) GetAMR() []string            { return nil }
func (g *zitadelGrant) GetAudience() []string       { return g.audience }
func (g *zitadelGrant) GetAuthTime() time.Time      { return g.authTime }
func (g *zitadelGrant) GetClientID() string         { return g.clientID }
func (g *zitadelGrant) GetScopes() []string         { return g.scopes }
func (g *zitadelGrant) GetSubject() string          { return g.subject }
func (g *zitadelGrant) SetCurrentScopes(s []string) { g.scopes = s }

func newZitadelStore(o Options) *zitadelStore {
	return &zitadelStore{
		client: zitadelClient{id: o.ClientID, life: o.TokenLife}, aud: o.Audience, life: o.TokenLife,
		users: map[string]string{}, devices: map[string]*zitadelDevice{}, access: map[string]zitadelToken{}, refresh: map[string]zitadelToken{},
	}
}

// A zitadelKey signs, and is published.
type zitadelKey struct {
	id  string
	key *rsa.PrivateKey
}

func (k *zitadelKey) ID() string                                  { return k.id }
func (k *zitadelKey) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (k *zitadelKey) Key() any                                    { return k.key }

type zitadelPublicKey struct{ *zitadelKey }

func (k zitadelPublicKey) Algorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (k zitadelPublicKey) Use() string                        { return "sig" }
func (k zitadelPublicKey) Key() any                           { return &k.key.PublicKey }

func (s *zitadelStore) rotate() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = append(s.keys, &zitadelKey{id: rand.Text(), key: key})
	return nil
}

func (s *zitadelStore) dropOldKeys() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = s.keys[len(s.keys)-1:]
}

// SigningKey returns the newest key.
func (s *zitadelStore) SigningKey(context.Context) (op.SigningKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[len(s.keys)-1], nil
}

func (s *zitadelStore) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{jose.RS256}, nil
}

func (s *zitadelStore) KeySet(context.Context) ([]op.Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var set []op.Key
	for _, k := range s.keys {
		set = append(set, zitadelPublicKey{k})
	}
	return set, nil
}

func (s *zitadelStore) subject(user string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subjectLocked(user)
}

func (s *zitadelStore) subjectLocked(user string) string {
	if s.users[user] == "" {
		s.users[user] = rand.Text()
	}
	return s.users[user]
}

// decide is what the page does when a person has pressed a button.
func (s *zitadelStore) decide(userCode, user string, approve bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.devices {
		switch {
		case d.userCode != userCode:
			continue
		case d.state.Done || d.state.Denied:
			return errors.New("the code was used")
		case time.Now().After(d.state.Expires):
			return errors.New("the code is too old")
		case !approve:
			d.state.Denied = true
		default:
			d.state.Done, d.state.Subject, d.state.AuthTime = true, s.subjectLocked(user), time.Now()
		}
		return nil
	}
	return errors.New("there is no such code")
}

func (s *zitadelStore) StoreDeviceAuthorization(_ context.Context, clientID, deviceCode, userCode string, expires time.Time, scopes []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.devices {
		if d.userCode == userCode {
			return op.ErrDuplicateUserCode
		}
	}
	s.devices[deviceCode] = &zitadelDevice{userCode: userCode, state: op.DeviceAuthorizationState{
		ClientID: clientID, Audience: []string{s.aud}, Scopes: scopes, Expires: expires,
	}}
	return nil
}

// GetDeviceAuthorizatonState returns what became of a code, which is spent when it was allowed: RFC 8628 section 3.5 has it
// good for one answer.
func (s *zitadelStore) GetDeviceAuthorizatonState(_ context.Context, clientID, deviceCode string) (*op.DeviceAuthorizationState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.devices[deviceCode]
	if d == nil || d.state.ClientID != clientID {
		return nil, errors.New("no such device code")
	}
	if d.state.Done {
		delete(s.devices, deviceCode)
	}
	state := d.state
	state.Audience = slices.Clone(state.Audience) // the library appends the client
	return &state, nil
}

func (s *zitadelStore) CreateAccessToken(_ context.Context, r op.TokenRequest) (string, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.createAccessLocked(grantOf(r))
}

func (s *zitadelStore) createAccessLocked(g zitadelGrant) (string, time.Time, error) {
	id, expires := rand.Text(), time.Now().Add(s.life)
	s.access[id] = zitadelToken{granted: g, expires: expires}
	return id, expires, nil
}

// CreateAccessAndRefreshTokens spends the refresh token in hand, if there is one, and makes its successor.
func (s *zitadelStore) CreateAccessAndRefreshTokens(_ context.Context, r op.TokenRequest, current string) (string, string, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := grantOf(r)
	if current != "" {
		if _, ok := s.refresh[current]; !ok { // another request was faster
			return "", "", time.Time{}, oidc.ErrInvalidGrant()
		}
		delete(s.refresh, current)
	}
	id, expires, err := s.createAccessLocked(g)
	next := rand.Text()
	s.refresh[next] = zitadelToken{granted: g, expires: time.Now().Add(zitadelRefreshLife)}
	return id, next, expires, err
}

func grantOf(r op.TokenRequest) zitadelGrant {
	g := zitadelGrant{subject: r.GetSubject(), audience: r.GetAudience(), scopes: r.GetScopes()}
	if id, ok := r.(op.IDTokenRequest); ok {
		g.clientID, g.authTime = id.GetClientID(), id.GetAuthTime()
	}
	return g
}

func (s *zitadelStore) TokenRequestByRefreshToken(_ context.Context, token string) (op.RefreshTokenRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.refresh[token]
	if !ok || time.Now().After(t.expires) {
		return nil, op.ErrInvalidRefreshToken
	}
	return &t.granted, nil
}

func (s *zitadelStore) GetRefreshTokenInfo(_ context.Context, clientID, token string) (userID, tokenID string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.refresh[token]
	if !ok || t.granted.clientID != clientID {
		return "", "", op.ErrInvalidRefreshToken
	}
	return t.granted.subject, token, nil
}

// RevokeToken forgets a token. One that is not known is revoked already, RFC 7009 section 2.2.
func (s *zitadelStore) RevokeToken(_ context.Context, tokenOrID, _, clientID string) *oidc.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tokens := range []map[string]zitadelToken{s.access, s.refresh} {
		if t, ok := tokens[tokenOrID]; ok && t.granted.clientID == clientID {
			delete(tokens, tokenOrID)
		}
	}
	return nil
}

func (s *zitadelStore) TerminateSession(_ context.Context, userID, clientID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tokens := range []map[string]zitadelToken{s.access, s.refresh} {
		for id, t := range tokens {
			if t.granted.subject == userID && t.granted.clientID == clientID {
				delete(tokens, id)
			}
		}
	}
	return nil
}

func (s *zitadelStore) GetClientByClientID(_ context.Context, id string) (op.Client, error) {
	if id != s.client.id {
		return nil, oidc.ErrInvalidClient().WithDescription("no such client")
	}
	return s.client, nil
}

// SetUserinfoFromScopes has to repeat the subject: the library copies it into the ID token over the one of the request.
func (s *zitadelStore) SetUserinfoFromScopes(_ context.Context, info *oidc.UserInfo, userID, _ string, _ []string) error {
	info.Subject = userID
	return nil
}

func (s *zitadelStore) SetUserinfoFromToken(_ context.Context, info *oidc.UserInfo, tokenID, subject, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.access[tokenID]
	if !ok || time.Now().After(t.expires) {
		return errors.New("the token has ended")
	}
	info.Subject = subject
	return nil
}

func (s *zitadelStore) GetPrivateClaimsFromScopes(context.Context, string, string, []string) (map[string]any, error) {
	return nil, nil
}

func (s *zitadelStore) Health(context.Context) error { return nil }

// errNotOffered answers what the one client, public and without a browser, has no use for.
var errNotOffered = errors.New("this provider has the device flow alone")

func (s *zitadelStore) CreateAuthRequest(context.Context, *oidc.AuthRequest, string) (op.AuthRequest, error) {
	return nil, errNotOffered
}

func (s *zitadelStore) AuthRequestByID(context.Context, string) (op.AuthRequest, error) {
	return nil, errNotOffered
}

func (s *zitadelStore) AuthRequestByCode(context.Context, string) (op.AuthRequest, error) {
	return nil, errNotOffered
}
func (s *zitadelStore) SaveAuthCode(context.Context, string, string) error { return errNotOffered }
func (s *zitadelStore) DeleteAuthRequest(context.Context, string) error    { return errNotOffered }
func (s *zitadelStore) AuthorizeClientIDSecret(context.Context, string, string) error {
	return errNotOffered
}

func (s *zitadelStore) SetIntrospectionFromToken(context.Context, *oidc.IntrospectionResponse, string, string, string) error {
	return errNotOffered
}

func (s *zitadelStore) GetKeyByIDAndClientID(context.Context, string, string) (*jose.JSONWebKey, error) {
	return nil, errNotOffered
}

func (s *zitadelStore) ValidateJWTProfileScopes(context.Context, string, []string) ([]string, error) {
	return nil, errNotOffered
}
