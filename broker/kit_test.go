package broker_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/broker"
)

// chain is a whole trust chain held in the open, to make claims that the minting code would refuse to.
type chain struct {
	operator, signing, system nkeys.KeyPair
	trust                     broker.Trust
}

func key(t testing.TB, prefix nkeys.PrefixByte) nkeys.KeyPair {
	t.Helper()
	kp, err := nkeys.CreatePair(prefix)
	if err != nil {
		t.Fatalf("create key: %v", err)
	}
	return kp
}

func public(t testing.TB, kp nkeys.KeyPair) string {
	t.Helper()
	p, err := kp.PublicKey()
	if err != nil {
		t.Fatalf("read public key: %v", err)
	}
	return p
}

func encode(t testing.TB, claim jwt.Claims, signer nkeys.KeyPair) string {
	t.Helper()
	token, err := claim.Encode(signer)
	if err != nil {
		t.Fatalf("encode claim: %v", err)
	}
	return token
}

func newChain(t testing.TB) *chain {
	t.Helper()
	c := &chain{operator: key(t, nkeys.PrefixByteOperator), signing: key(t, nkeys.PrefixByteOperator), system: key(t, nkeys.PrefixByteAccount)}
	op := jwt.NewOperatorClaims(public(t, c.operator))
	op.SigningKeys.Add(public(t, c.signing))
	op.SystemAccount = public(t, c.system)
	sys := jwt.NewAccountClaims(public(t, c.system))
	c.trust = broker.Trust{
		OperatorJWT: encode(t, op, c.operator), SystemPublic: public(t, c.system), SystemJWT: encode(t, sys, c.signing),
		Accounts: map[string]string{},
	}
	return c
}

// rotated is the same chain with another operator signing key, which has signed everything anew.
func (c *chain) rotated(t testing.TB) *chain {
	t.Helper()
	next := &chain{operator: c.operator, signing: key(t, nkeys.PrefixByteOperator), system: c.system}
	op := must(jwt.DecodeOperatorClaims(c.trust.OperatorJWT))(t)
	op.SigningKeys = jwt.StringList{public(t, next.signing)}
	next.trust = broker.Trust{OperatorJWT: encode(t, op, c.operator), SystemPublic: c.trust.SystemPublic, Accounts: map[string]string{}}
	next.trust.SystemJWT = encode(t, must(jwt.DecodeAccountClaims(c.trust.SystemJWT))(t), next.signing)
	for public, token := range c.trust.Accounts {
		next.trust.Accounts[public] = encode(t, must(jwt.DecodeAccountClaims(token))(t), next.signing)
	}
	return next
}

// account adds a data account to the records and returns its key.
func (c *chain) account(t testing.TB, adjust ...func(*jwt.AccountClaims)) nkeys.KeyPair {
	t.Helper()
	kp := key(t, nkeys.PrefixByteAccount)
	c.trust.Accounts[public(t, kp)] = c.claim(t, kp, adjust...)
	return kp
}

func (c *chain) claim(t testing.TB, account nkeys.KeyPair, adjust ...func(*jwt.AccountClaims)) string {
	t.Helper()
	claim := jwt.NewAccountClaims(public(t, account))
	claim.Limits.DiskStorage, claim.Limits.MemoryStorage = 64<<20, 64<<20
	claim.Limits.Streams, claim.Limits.Consumer = 10, 10
	for _, a := range adjust {
		a(claim)
	}
	return encode(t, claim, c.signing)
}

// user is a credential of an account that ends after ttl; 0 is never.
func user(t testing.TB, account nkeys.KeyPair, ttl time.Duration) nats.Option {
	t.Helper()
	kp := key(t, nkeys.PrefixByteUser)
	claim := jwt.NewUserClaims(public(t, kp))
	if ttl != 0 {
		claim.Expires = time.Now().Add(ttl).Unix()
	}
	token := encode(t, claim, account)
	return nats.UserJWT(func() (string, error) { return token, nil }, kp.Sign)
}

// options are those of a broker that only this process reaches.
func options(t testing.TB) *broker.Options {
	t.Helper()
	return &broker.Options{StoreDir: t.TempDir(), NoListen: true, MaxStore: 1 << 30, MaxMemory: 256 << 20}
}

// listening is options of a broker that listens on a port of this machine, in plaintext.
func listening(t testing.TB) *broker.Options {
	t.Helper()
	opts := options(t)
	opts.NoListen, opts.Port, opts.Transport = false, broker.RandomPort, broker.Plaintext()
	return opts
}

func start(t testing.TB, trust broker.Trust, opts *broker.Options) *broker.Server {
	t.Helper()
	s, err := broker.Start(context.Background(), trust, opts)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

func connect(t testing.TB, s *broker.Server, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("", append([]nats.Option{nats.InProcessServer(s.InProcess()), nats.Timeout(time.Minute)}, opts...)...)
	if err != nil {
		t.Fatalf("connect in process: %v", err)
	}
	t.Cleanup(nc.Close)
	return nc
}
