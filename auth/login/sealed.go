package login

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/secret/filestore"
	"github.com/cotal-go/cotal/wire"
)

// A sealed file is
//
//	"COTALSES" | version 1 | mark of the kind of key | id of the key, 8 bytes | nonce, 12 bytes | AES-256-GCM
//
// and what is authenticated besides is everything before the nonce and the name of the session.
const (
	sealMagic   = "COTALSES"
	sealVersion = 1
	keyIDSize   = 8
	nonceSize   = 12
	headSize    = len(sealMagic) + 2 + keyIDSize
)

// sealed is the body of [Sessions]: files sealed with the first of its keys, read with whichever sealed them.
type sealed struct {
	files *filestore.Store
	keys  []keys
}

var _ Sessions = (*sealed)(nil)

// Kind implements [Sessions].
func (s *sealed) Kind() string { return s.keys[0].kind() }

// Format writes the folder and the kind.
func (s *sealed) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.describe()) }

// LogValue returns the folder and the kind.
func (s *sealed) LogValue() slog.Value { return slog.StringValue(s.describe()) }

func (s *sealed) describe() string {
	return fmt.Sprintf("[sessions in %q, key in %s]", s.files.Dir(), s.Kind())
}

func (s *sealed) path(key Key) string { return "session/" + key.name() }

// Load implements [Sessions].
func (s *sealed) Load(ctx context.Context, key Key) (Session, error) {
	data, err := s.files.Get(ctx, s.path(key))
	if err != nil {
		return Session{}, s.storeError(ctx, "load", key, err)
	}
	text, err := s.unseal(ctx, key, data)
	if err != nil {
		return Session{}, err
	}
	session, err := ParseSession(text)
	if err != nil {
		return Session{}, s.unreadable(key, err.Error())
	}
	return session, nil
}

// Save implements [Sessions].
func (s *sealed) Save(ctx context.Context, key Key, session Session) error {
	if session.Subject == "" {
		return wire.Errorf(wire.CodeBadRequest, "save session of %q: it is nobody's", key.Issuer)
	}
	text, err := session.Reveal()
	if err != nil {
		return err
	}
	raw, err := s.keys[0].key(ctx, true)
	if err != nil {
		return s.storeError(ctx, "save", key, err)
	}
	aead, id, err := cipherOf(raw)
	if err != nil {
		return s.storeError(ctx, "save", key, err)
	}
	data := append([]byte(sealMagic), sealVersion, s.keys[0].mark())
	data = append(data, id...)
	bound := binding(data, key)
	nonce := random(nonceSize)
	data = append(data, nonce...)
	if err := s.files.Put(ctx, s.path(key), aead.Seal(data, nonce, text, bound)); err != nil {
		return s.storeError(ctx, "save", key, err)
	}
	return nil
}

// Delete implements [Sessions].
func (s *sealed) Delete(ctx context.Context, key Key) error {
	if err := s.files.Delete(ctx, s.path(key)); err != nil {
		return s.storeError(ctx, "delete", key, err)
	}
	return nil
}

// unseal opens a file. Every error leaves the file as it is.
func (s *sealed) unseal(ctx context.Context, key Key, data []byte) ([]byte, error) {
	if len(data) < headSize+nonceSize || string(data[:len(sealMagic)]) != sealMagic {
		return nil, s.unreadable(key, "it is not a session of ours")
	}
	if v := data[len(sealMagic)]; v != sealVersion {
		return nil, s.unreadable(key, fmt.Sprintf("it has version %d, this program knows %d", v, sealVersion))
	}
	head, mark := data[:headSize], data[len(sealMagic)+1]
	for _, k := range s.keys {
		if k.mark() != mark {
			continue
		}
		raw, err := k.key(ctx, false)
		if errors.Is(err, errNoKey) {
			return nil, s.unreadable(key, "its key is no longer in the "+k.kind())
		}
		if err != nil {
			return nil, s.storeError(ctx, "load", key, err)
		}
		aead, id, err := cipherOf(raw)
		if err != nil {
			return nil, s.storeError(ctx, "load", key, err)
		}
		if string(id) != string(head[len(sealMagic)+2:]) {
			return nil, s.unreadable(key, "it was sealed with another key than the one of the "+k.kind())
		}
		text, err := aead.Open(nil, data[headSize:headSize+nonceSize], data[headSize+nonceSize:], binding(head, key))
		if err != nil {
			return nil, s.unreadable(key, "it was changed, or is the session of another mesh or provider")
		}
		return text, nil
	}
	return nil, s.unreadable(key, "its key cannot be had here: it is in the "+kindOf(mark))
}

func kindOf(mark byte) string {
	switch mark {
	case 'k':
		return KindKeyring
	case 'p':
		return KindPassphrase
	case 'f':
		return KindFile
	}
	return "unknown"
}

// cipherOf returns the cipher of a key and the key's id.
func cipherOf(key []byte) (aead cipher.AEAD, id []byte, err error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, nil, err
	}
	if aead, err = cipher.NewGCM(block); err != nil {
		return nil, nil, err
	}
	sum := sha256.Sum256(append([]byte("cotal session key id\x00"), key...))
	return aead, sum[:keyIDSize], nil
}

// binding is what a session is sealed together with.
func binding(head []byte, key Key) []byte { return append(append([]byte{}, head...), key.name()...) }

func (s *sealed) unreadable(key Key, why string) error {
	return wire.Errorf(wire.CodeFailedPrecondition, "load session of %q: file %q cannot be read: %s; it was left as it is, cotal login replaces it",
		key.Issuer, filepath.Join(s.files.Dir(), filepath.FromSlash(s.path(key))), why)
}

// storeError translates the error of a store or keyring.
func (s *sealed) storeError(ctx context.Context, verb string, key Key, err error) error {
	switch {
	case errors.Is(err, secret.ErrNotFound):
		return wire.Errorf(wire.CodeNotFound, "%s session of %q: there is none here: run cotal login", verb, key.Issuer)
	case ctx.Err() != nil:
		return wire.Errorf(wire.CodeOf(ctx.Err()), "%s session of %q: %w", verb, key.Issuer, ctx.Err())
	}
	return wire.Errorf(wire.CodeUnavailable, "%s session of %q: %v", verb, key.Issuer, err)
}
