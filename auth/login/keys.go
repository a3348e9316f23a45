package login

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/zalando/go-keyring"
	"golang.org/x/crypto/scrypt"

	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/secret/filestore"
)

const keySize = 32 // of AES-256

// keys is a source of the one key that a store seals with.
type keys interface {
	kind() string
	// mark is the byte that stands for the kind in a sealed file.
	mark() byte
	// key returns the key, and makes one if there is none and create says so; without, that is errNoKey.
	key(ctx context.Context, create bool) ([]byte, error)
}

var errNoKey = errors.New("there is no key")

// The files of a store, beside the folder of the sessions.
const (
	keyFile     = "session.key"
	saltFile    = "session.salt"
	keyLockFile = ".session-key.lock"
)

// once returns what a file holds, made of random bytes if there is none. The first of several processes wins.
func once(ctx context.Context, files *filestore.Store, name string, size int, create bool) ([]byte, error) {
	text, err := files.Get(ctx, name)
	if errors.Is(err, secret.ErrNotFound) {
		if !create {
			return nil, errNoKey
		}
		err = files.Create(ctx, name, []byte(base64.StdEncoding.EncodeToString(random(size))))
		if err != nil && !errors.Is(err, secret.ErrExists) {
			return nil, err
		}
		text, err = files.Get(ctx, name)
	}
	if err != nil {
		return nil, err
	}
	return decodeKey(text, size, filepath.Join(files.Dir(), name))
}

func decodeKey(text []byte, size int, where string) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil || len(raw) != size {
		return nil, fmt.Errorf("what is kept as %q is not a key of ours", where)
	}
	return raw, nil
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

// fileKeys keeps the key in a file of mode 0600.
type fileKeys struct{ files *filestore.Store }

func (*fileKeys) kind() string { return KindFile }
func (*fileKeys) mark() byte   { return 'f' }
func (k *fileKeys) key(ctx context.Context, create bool) ([]byte, error) {
	return once(ctx, k.files, keyFile, keySize, create)
}

// passKeys derives the key from a passphrase with scrypt (RFC 7914) at the cost that its authors recommend for 2017 and after. The
// salt is a file.
type passKeys struct {
	files *filestore.Store
	ask   func(ctx context.Context) ([]byte, error)
	gate  gate
	have  func() []byte // the derived key; guarded by gate
}

const (
	saltSize = 16
	scryptN  = 1 << 15
	scryptR  = 8
	scryptP  = 1
)

func (*passKeys) kind() string { return KindPassphrase }
func (*passKeys) mark() byte   { return 'p' }
func (k *passKeys) key(ctx context.Context, create bool) ([]byte, error) {
	if err := k.gate.enter(ctx); err != nil {
		return nil, err
	}
	defer k.gate.leave()
	if k.have != nil {
		return k.have(), nil
	}
	salt, err := once(ctx, k.files, saltFile, saltSize, create)
	if err != nil {
		return nil, err
	}
	pass, err := k.ask(ctx)
	switch {
	case err != nil:
		return nil, err
	case len(pass) == 0:
		return nil, errors.New("the passphrase is empty")
	}
	key, err := scrypt.Key(pass, salt, scryptN, scryptR, scryptP, keySize)
	if err != nil {
		return nil, err
	}
	k.have = func() []byte { return key }
	return key, nil
}

// ring is what is needed of a keyring. Get and Delete of what is not there return keyring.ErrNotFound.
type ring interface {
	Get(service, user string) (string, error)
	Set(service, user, value string) error
	Delete(service, user string) error
}

// osRing is the keyring of the operating system.
type osRing struct{}

func (osRing) Get(service, user string) (string, error) { return keyring.Get(service, user) }
func (osRing) Set(service, user, value string) error    { return keyring.Set(service, user, value) }
func (osRing) Delete(service, user string) error        { return keyring.Delete(service, user) }

// ringService is the name under which a person finds our keys in the keyring.
const ringService = "cotal session key"

// ringKeys keeps the key in a keyring, one for each folder of sessions.
type ringKeys struct {
	ring     ring
	user     string
	lock     string
	patience time.Duration
	gate     gate // keyrings need not be safe for concurrent use
}

func newRingKeys(r ring, dir string, patience time.Duration) *ringKeys {
	sum := sha256.Sum256([]byte(dir))
	return &ringKeys{ring: r, user: hex.EncodeToString(sum[:8]), lock: filepath.Join(dir, keyLockFile), patience: patience, gate: newGate()}
}

func (*ringKeys) kind() string { return KindKeyring }
func (*ringKeys) mark() byte   { return 'k' }

// works tries the keyring: our key is there, or a value can be kept, read and removed.
func (k *ringKeys) works(ctx context.Context) error {
	_, err := k.bounded(ctx, func() (string, error) {
		_, err := k.ring.Get(ringService, k.user)
		if !errors.Is(err, keyring.ErrNotFound) {
			return "", err
		}
		probe, value := "probe-"+rand.Text(), rand.Text()
		if err := k.ring.Set(ringService, probe, value); err != nil {
			return "", err
		}
		got, err := k.ring.Get(ringService, probe)
		if err := errors.Join(err, k.ring.Delete(ringService, probe)); err != nil {
			return "", err
		}
		if got != value {
			return "", errors.New("the keyring does not return what was put in")
		}
		return "", nil
	})
	return err
}

func (k *ringKeys) key(ctx context.Context, create bool) ([]byte, error) {
	get := func() (string, error) { return k.ring.Get(ringService, k.user) }
	text, err := k.bounded(ctx, get)
	if errors.Is(err, keyring.ErrNotFound) {
		if !create {
			return nil, errNoKey
		}
		release, lockErr := lockFile(ctx, k.lock)
		if lockErr != nil {
			return nil, lockErr
		}
		defer release()
		text, err = k.bounded(ctx, func() (string, error) {
			text, err := get() // another process may have been first
			if !errors.Is(err, keyring.ErrNotFound) {
				return text, err
			}
			text = base64.StdEncoding.EncodeToString(random(keySize))
			return text, k.ring.Set(ringService, k.user, text)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("ask the keyring: %w", err)
	}
	return decodeKey([]byte(text), keySize, ringService+" in the keyring")
}

// bounded asks the keyring, which knows no context. One that does not answer keeps the goroutine until it does, and everybody else
// out: it is the only goroutine here that nobody waits for, because nothing ends it.
func (k *ringKeys) bounded(ctx context.Context, do func() (string, error)) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, k.patience, fmt.Errorf("no answer within %s", k.patience))
	defer cancel()
	if err := k.gate.enter(ctx); err != nil {
		return "", context.Cause(ctx)
	}
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		defer k.gate.leave()
		text, err := do()
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// gate lets one in at a time and is waited for with a context.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

func (g gate) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err // also when there is room
	}
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g gate) leave() { <-g }
