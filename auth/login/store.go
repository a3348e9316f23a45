package login

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/gofrs/flock"

	"github.com/cotal-go/cotal/secret/filestore"
	"github.com/cotal-go/cotal/wire"
)

// Key names one session: a person signs in at one provider for one mesh.
type Key struct {
	Mesh   string // the mesh, by a name or address that the program chooses and keeps
	Issuer string // of the identity provider
}

// name is a name of fixed length and plain characters for a key.
func (k Key) name() string {
	text, err := json.Marshal([2]string{k.Mesh, k.Issuer}) // unambiguous, whatever stands in either
	if err != nil {
		panic(err) // strings always encode
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// Sessions keeps sessions. Bodies are safe for concurrent use, also among processes.
type Sessions interface {
	// Load returns the session under key, or not-found. Failed-precondition says that something is there which cannot be read; it is left
	// as it is. Unavailable says that the store did not answer, which says nothing about the session.
	Load(ctx context.Context, key Key) (Session, error)
	// Save keeps s under key, whatever was there. After an error the old session is there, or the new one.
	Save(ctx context.Context, key Key, s Session) error
	// Delete forgets the session under key, or returns not-found.
	Delete(ctx context.Context, key Key) error
	// Kind says where the key is that new sessions are sealed with: one of the Kind constants for the bodies of this package.
	Kind() string
}

// Where the key is that sessions are sealed with.
const (
	KindKeyring    = "keyring"    // in the keyring of the operating system
	KindFile       = "file"       // in a private file beside the sessions
	KindPassphrase = "passphrase" // derived from a passphrase, kept nowhere
)

// ringPatience bounds how long the keyring of the operating system may take. It may ask the person to unlock it.
const ringPatience = 30 * time.Second

// StoreOptions choose where sessions are kept.
type StoreOptions struct {
	// Dir is the private folder of the sessions, made if there is none. It is required.
	Dir string
	// Prefer is KindKeyring, KindFile or KindPassphrase to use that and fail if it does not work. Empty uses the keyring if it works,
	// else the passphrase if there is one, else a key file.
	Prefer string
	// Passphrase returns the passphrase. It is called when a session is first loaded or saved, not by Open.
	Passphrase func(ctx context.Context) ([]byte, error)
}

// Open opens the store of sessions. Each session is a file of mode 0600, sealed with AES-256-GCM and bound to its [Key], so that files can be
// neither read, changed nor swapped. The key is where Kind says. A session sealed by a key that Open did not choose is still read if that
// key can be had: signing in on a desktop and working over SSH need no second login as long as the key is a file.
//
// Keyrings hold the key and not the sessions, because those of macOS and Windows hold no more than 2 to 3 KiB and tokens may be longer.
//
// Whether the keyring works is tried out by keeping a value there. On Linux that means a Secret Service on the D-Bus of the session.
//
// Errors: bad-request for unusable options, failed-precondition when what is preferred does not work, unavailable when the folder cannot be
// used.
func Open(ctx context.Context, opts *StoreOptions) (Sessions, error) {
	if opts == nil || opts.Dir == "" {
		return nil, wire.Errorf(wire.CodeBadRequest, "open sessions: no folder given")
	}
	return open(ctx, *opts, osRing{}, ringPatience)
}

func open(ctx context.Context, o StoreOptions, r ring, patience time.Duration) (Sessions, error) {
	files, err := filestore.New(o.Dir)
	if err != nil {
		return nil, wire.Errorf(wire.CodeUnavailable, "open sessions: %v", err)
	}
	ringed := newRingKeys(r, files.Dir(), patience)
	plain := &fileKeys{files: files}
	s := &sealed{files: files}
	var pass *passKeys
	if o.Passphrase != nil {
		pass = &passKeys{files: files, ask: o.Passphrase, gate: newGate()}
	}
	switch o.Prefer {
	case "":
		if err := ringed.works(ctx); err == nil {
			s.keys = append(s.keys, ringed)
		} else if ctx.Err() != nil {
			return nil, wire.Errorf(wire.CodeOf(ctx.Err()), "open sessions: %w", ctx.Err())
		}
		if pass != nil {
			s.keys = append(s.keys, pass)
		}
		s.keys = append(s.keys, plain)
	case KindKeyring:
		if err := ringed.works(ctx); err != nil {
			return nil, wire.Errorf(wire.CodeFailedPrecondition, "open sessions: the keyring does not work here (%v): prefer %q", err, KindFile)
		}
		s.keys = []keys{ringed, plain}
	case KindFile:
		s.keys = []keys{plain}
	case KindPassphrase:
		if pass == nil {
			return nil, wire.Errorf(wire.CodeBadRequest, "open sessions: no passphrase given")
		}
		s.keys = []keys{pass}
	default:
		return nil, wire.Errorf(wire.CodeBadRequest, "open sessions: %q is none of %q, %q and %q", o.Prefer, KindKeyring, KindFile, KindPassphrase)
	}
	return s, nil
}

// lockPoll is how often one who found a lock taken tries again.
const lockPoll = 10 * time.Millisecond

// lockFile waits for the lock of a file, which it makes with mode 0600, and returns what gives it back.
func lockFile(ctx context.Context, path string) (release func(), err error) {
	l := flock.New(path, flock.SetPermissions(0o600))
	ok, err := l.TryLockContext(ctx, lockPoll)
	switch {
	case ctx.Err() != nil && !ok:
		return nil, wire.Errorf(wire.CodeOf(ctx.Err()), "wait for the lock %q, which another process holds: %w", path, ctx.Err())
	case err == nil && !ok:
		err = errors.New("not taken")
		fallthrough
	case err != nil:
		return nil, wire.Errorf(wire.CodeUnavailable, "take the lock %q: %v", path, err)
	}
	return func() { _ = l.Unlock() }, nil
}
