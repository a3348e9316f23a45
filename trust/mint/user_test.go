package mint_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"

	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

func TestUser(t *testing.T) {
	a, _ := withSpace(t)
	for _, p := range trust.Profiles() {
		creds, err := a.User(t.Context(), mint.UserRequest{Space: lab, Profile: p, Principal: ada})
		if err != nil {
			t.Fatal(err)
		}
		id := creds.Identity()
		if id.Profile != p || id.Principal != ada || id.Space != lab || id.Inbox != string(id.UID) {
			t.Errorf("profile %s: identity %+v", p, id)
		}
		if life := id.Expires.Sub(id.IssuedAt); life < p.Lifetime().Default || life > p.Lifetime().Default+time.Second {
			t.Errorf("profile %s lives %s, want %s", p, life, p.Lifetime().Default)
		}
		c, err := jwt.DecodeUserClaims(creds.JWT())
		if err != nil {
			t.Fatal(err)
		}
		if !c.HasEmptyPermissions() {
			t.Errorf("profile %s: the JWT carries permissions of its own", p)
		}
	}
}

func TestUserKeepsItsLifecycle(t *testing.T) {
	a, _ := withSpace(t)
	first := user(t, a).Identity()
	again, err := a.User(t.Context(), mint.UserRequest{Space: lab, Profile: trust.Agent, Principal: ada, UID: first.UID})
	if err != nil {
		t.Fatal(err)
	}
	if id := again.Identity(); id.UID != first.UID || id.UserKey == first.UserKey {
		t.Errorf("renewed identity %+v, want the uid of %+v and another key", id, first)
	}
	if fresh := user(t, a).Identity(); fresh.UID == first.UID {
		t.Error("a credential without a uid inherited one")
	}
}

func TestUserRefuses(t *testing.T) {
	a, _ := withSpace(t)
	for name, c := range map[string]struct {
		want error
		edit func(r *mint.UserRequest)
	}{
		"unknown space":     {wire.ErrNotFound, func(r *mint.UserRequest) { r.Space = "nowhere" }},
		"bad space":         {wire.ErrBadRequest, func(r *mint.UserRequest) { r.Space = "a.b" }},
		"no profile":        {wire.ErrBadRequest, func(r *mint.UserRequest) { r.Profile = "" }},
		"unknown profile":   {wire.ErrBadRequest, func(r *mint.UserRequest) { r.Profile = "root" }},
		"system profile":    {wire.ErrBadRequest, func(r *mint.UserRequest) { r.Profile = trust.SystemControl.Profile() }},
		"no principal":      {wire.ErrBadRequest, func(r *mint.UserRequest) { r.Principal = wire.Principal{} }},
		"wildcard actor":    {wire.ErrBadRequest, func(r *mint.UserRequest) { r.Principal.Actor = "*" }},
		"bad uid":           {wire.ErrBadRequest, func(r *mint.UserRequest) { r.UID = "x" }},
		"longer than max":   {wire.ErrBadRequest, func(r *mint.UserRequest) { r.TTL = trust.MaxLifetime + time.Second }},
		"negative lifetime": {wire.ErrBadRequest, func(r *mint.UserRequest) { r.TTL = -time.Second }},
		"under a second":    {wire.ErrBadRequest, func(r *mint.UserRequest) { r.TTL = time.Millisecond }},
		"operator for days": {wire.ErrBadRequest, func(r *mint.UserRequest) { r.Profile, r.TTL = trust.Operator, 24*time.Hour }},
		"reserved command":  {wire.ErrPermissionDenied, func(r *mint.UserRequest) { r.Commands = []string{"delivery.enrol"} }},
	} {
		req := mint.UserRequest{Space: lab, Profile: trust.Agent, Principal: ada}
		c.edit(&req)
		if creds, err := a.User(t.Context(), req); !errors.Is(err, c.want) || creds != nil {
			t.Errorf("%s: %v, %v, want %v", name, creds, err, c.want)
		}
	}
	if _, err := a.SystemUser(t.Context(), mint.SystemRequest{}); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("a system credential of no kind: %v, want a bad request", err)
	}
	for _, r := range []mint.SystemRequest{
		{Kind: mint.SystemWatcher}, {Kind: mint.SystemWatcher, Account: "*"}, {Kind: mint.SystemWatcher, Account: "A.B"},
		{Kind: mint.SystemWatcher, Account: generate(t, signer.User).Public()}, {Kind: mint.SystemControl, Account: systemRequest(t, a, mint.SystemWatcher).Account},
	} {
		if _, err := a.SystemUser(t.Context(), r); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("a %s credential of account %q: %v, want a bad request", r.Kind, r.Account, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.User(ended, mint.UserRequest{Space: lab, Profile: trust.Agent, Principal: ada}); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
}

// TestUserAtTheBroker connects every profile and kind.
func TestUserAtTheBroker(t *testing.T) {
	a, _ := withSpace(t)
	r := run(t, a)
	for _, p := range trust.Profiles() {
		creds, err := a.User(t.Context(), mint.UserRequest{Space: lab, Profile: p, Principal: ada})
		if err != nil {
			t.Fatal(err)
		}
		r.accepted(string(p), creds)
	}
	for _, k := range trust.SystemKinds() {
		creds, err := a.SystemUser(t.Context(), systemRequest(t, a, k))
		if err != nil {
			t.Fatal(err)
		}
		r.accepted(string(k), creds)
	}
	stranger, _ := withSpace(t)
	r.refused("a credential of another operator", user(t, stranger))
}

// systemRequest asks for a credential of a kind; a watcher's is of the account of the space.
func systemRequest(t testing.TB, a *mint.Authority, k trust.SystemKind) mint.SystemRequest {
	t.Helper()
	r := mint.SystemRequest{Kind: k}
	if k == trust.SystemWatcher {
		rec, err := a.Account(t.Context(), lab)
		if err != nil {
			t.Fatal(err)
		}
		r.Account = rec.Public
	}
	return r
}

// elsewhere keeps some keys outside the store.
type elsewhere map[string]signer.Signer

func (e elsewhere) options() *mint.Options {
	return &mint.Options{Signer: func(_ context.Context, key string) (signer.Signer, error) {
		s, ok := e[key]
		if !ok {
			return nil, nil
		}
		if s == nil {
			return nil, errors.New("vault sealed")
		}
		return s, nil
	}}
}

func generate(t testing.TB, kind signer.Kind) *signer.Local {
	t.Helper()
	l, err := signer.Generate(kind)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestSignersElsewhere(t *testing.T) {
	keys := elsewhere{
		trust.OperatorKey:                  generate(t, signer.Operator),
		trust.SigningKey(lab, trust.Agent): generate(t, signer.Account),
	}
	store := memstore.New()
	a, err := mint.Init(t.Context(), store, keys.options())
	if err != nil {
		t.Fatal(err)
	}
	rec, err := a.AddSpace(t.Context(), lab, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := keys[trust.SigningKey(lab, trust.Agent)]
	if got := rec.KeysOf(trust.Agent); len(got) != 1 || got[0] != first.Public() {
		t.Errorf("the account lists %q, want the key kept elsewhere", got)
	}
	for key := range keys {
		if _, err := store.Get(t.Context(), key); err == nil {
			t.Errorf("the store holds %q as well", key)
		}
	}
	r := run(t, a)
	r.accepted("a credential signed elsewhere", user(t, a))

	if _, err := a.RotateSigningKey(t.Context(), lab, trust.Agent, r.push); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("rotating a key that has not changed elsewhere = %v, want failed-precondition", err)
	}
	old := user(t, a)
	keys[trust.SigningKey(lab, trust.Agent)] = generate(t, signer.Account)
	if _, err := a.User(t.Context(), mint.UserRequest{Space: lab, Profile: trust.Agent, Principal: ada}); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("minting with a key that no record lists = %v, want failed-precondition", err)
	}
	if _, err := a.RotateSigningKey(t.Context(), lab, trust.Agent, r.push); err != nil {
		t.Fatal(err)
	}
	r.accepted("the new key", user(t, a))
	r.accepted("the old key", old)
	if err := a.RemoveSpace(t.Context(), lab); err != nil {
		t.Errorf("RemoveSpace with a key elsewhere: %v", err)
	}
}

// liar signs with another key than it says.
type liar struct{ *signer.Local }

func (l liar) Public() string { return "A" + l.Local.Public()[1:] }

type imposter struct{ says, signs *signer.Local }

func (i imposter) Public() string { return i.says.Public() }
func (i imposter) Sign(ctx context.Context, p []byte) ([]byte, error) {
	return i.signs.Sign(ctx, p)
}

func TestBadSigners(t *testing.T) {
	key := trust.SigningKey(lab, trust.Agent)
	good := generate(t, signer.Account)
	keys := elsewhere{key: good}
	a, err := mint.Init(t.Context(), memstore.New(), keys.options())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.AddSpace(t.Context(), lab, nil); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		want error
		s    signer.Signer
	}{
		"unreachable":         {wire.ErrUnavailable, nil},
		"refusing":            {wire.ErrPrecondition, signer.Refuse{}},
		"signs with another":  {wire.ErrPrecondition, imposter{good, generate(t, signer.Account)}},
		"not of this account": {wire.ErrPrecondition, generate(t, signer.Account)},
		"of another kind":     {wire.ErrPrecondition, generate(t, signer.Operator)},
		"with a made-up name": {wire.ErrPrecondition, liar{generate(t, signer.Operator)}},
	} {
		keys[key] = c.s
		creds, err := a.User(t.Context(), mint.UserRequest{Space: lab, Profile: trust.Agent, Principal: ada})
		if !errors.Is(err, c.want) || creds != nil {
			t.Errorf("%s: %v, %v, want %v", name, creds, err, c.want)
		}
	}
	keys[key] = good
	user(t, a)
}

// TestAuthorityPrintsNothingSecret guards logs that print the authority itself.
func TestAuthorityPrintsNothingSecret(t *testing.T) {
	a, store := withSpace(t)
	seed, err := store.Get(t.Context(), trust.OperatorKey)
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprintf("%v %+v %#v", a, a, store); strings.Contains(text, string(seed)) {
		t.Error("printing an authority shows a seed")
	}
}

func BenchmarkUser(b *testing.B) {
	a, _ := withSpace(b)
	for b.Loop() {
		user(b, a)
	}
}

// TestSupervisorsHaveAnInstance: it is one name, and nobody else's to have.
func TestSupervisorsHaveAnInstance(t *testing.T) {
	a, _ := withSpace(t)
	for _, tt := range []struct {
		profile  trust.Profile
		instance string
		ok       bool
	}{{trust.Supervisor, "host-1_x", true}, {trust.Supervisor, "", true}, {trust.Supervisor, "*", false}, {trust.Supervisor, "a.b", false},
		{trust.Supervisor, ">", false}, {trust.Agent, "host-1_x", false}, {trust.Operator, "host-1_x", false}} {
		creds, err := a.User(t.Context(), mint.UserRequest{Space: lab, Profile: tt.profile, Principal: tt.profile.Principal(), Instance: tt.instance})
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("a credential of profile %s for instance %q: %v", tt.profile, tt.instance, err)
		}
		if err == nil && creds.Identity().Instance != tt.instance {
			t.Errorf("the credential for instance %q says %q", tt.instance, creds.Identity().Instance)
		}
	}
}
