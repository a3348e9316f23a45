package trust

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"unicode/utf8"

	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/wire"
)

const (
	ownerContext = "cotal-owner-v1:"
	ownerPrefix  = "u_"
	ownerBytes   = 16 // of the MAC; 26 characters of base32, the last of which carries three bits
	ownerSecret  = 32
	maxOwnerFile = 1 << 10
)

// ownerAlphabet is the base32 of RFC 4648 section 6 in lower case, without padding.
const ownerAlphabet = "abcdefghijklmnopqrstuvwxyz234567"

// OwnerSecret is the key from which the owners of one space are derived. It prints, logs and encodes as a fixed word. The
// zero value derives nothing.
type OwnerSecret struct{ reveal func() []byte }

// NewOwnerSecret keeps a copy of 32 bytes. Its error has code bad-request.
func NewOwnerSecret(key []byte) (OwnerSecret, error) {
	if len(key) != ownerSecret {
		return OwnerSecret{}, wire.Errorf(wire.CodeBadRequest, "read owner secret: %d bytes, want %d", len(key), ownerSecret)
	}
	kept := string(key)
	return OwnerSecret{reveal: func() []byte { return []byte(kept) }}, nil
}

// GenerateOwnerSecret makes a secret from the system's random source.
func GenerateOwnerSecret() (OwnerSecret, error) {
	key := make([]byte, ownerSecret)
	if _, err := rand.Read(key); err != nil {
		return OwnerSecret{}, fmt.Errorf("generate owner secret: %w", err)
	}
	return NewOwnerSecret(key)
}

// Owner returns the owner of a subject of an identity provider in this space: "u_" and the lower-case base32, without
// padding, of the first 16 bytes of HMAC-SHA256(secret, "cotal-owner-v1:" + text), where text is the JSON array
// [issuer,sub] as JSON.stringify of JavaScript writes it. The derivation is frozen: any change of it makes everybody a
// stranger. Both strings count byte for byte.
//
// Errors: bad-request for an empty string or one that is not UTF-8; failed-precondition for the zero secret.
func (s OwnerSecret) Owner(issuer, sub string) (string, error) {
	if s.reveal == nil {
		return "", wire.Errorf(wire.CodeFailedPrecondition, "derive owner: no owner secret")
	}
	for _, v := range []struct{ name, value string }{{"issuer", issuer}, {"subject", sub}} {
		if v.value == "" || !utf8.ValidString(v.value) {
			return "", wire.Errorf(wire.CodeBadRequest, "derive owner: the %s is empty or not UTF-8", v.name)
		}
	}
	text := append([]byte(ownerContext), '[')
	text = appendScriptString(text, issuer)
	text = append(text, ',')
	text = appendScriptString(text, sub)
	text = append(text, ']')
	mac := hmac.New(sha256.New, s.reveal())
	mac.Write(text)
	return ownerPrefix + ownerEncoding().EncodeToString(mac.Sum(nil)[:ownerBytes]), nil
}

func ownerEncoding() *base32.Encoding {
	return base32.NewEncoding(ownerAlphabet).WithPadding(base32.NoPadding)
}

// appendScriptString appends s as JSON.stringify writes a string (ECMA-262, QuoteJSONString): the quote, the backslash and
// the control characters below a space are escaped, with their short forms where there are any, and nothing else.
// encoding/json differs: it escapes U+2028 and U+2029.
func appendScriptString(b []byte, s string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	for _, c := range []byte(s) {
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, `\b`...)
		case '\t':
			b = append(b, `\t`...)
		case '\n':
			b = append(b, `\n`...)
		case '\f':
			b = append(b, `\f`...)
		case '\r':
			b = append(b, `\r`...)
		default:
			if c < ' ' {
				b = append(b, `\u00`...)
				b = append(b, digits[c>>4], digits[c&0xf])
				continue
			}
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// ValidateOwner reports whether s can have come from [OwnerSecret.Owner]: "u_" and 26 characters of [a-z2-7], the last of
// which carries three bits. Its error has code bad-request.
func ValidateOwner(s string) error {
	text, ok := strings.CutPrefix(s, ownerPrefix)
	raw, err := ownerEncoding().DecodeString(text)
	// The decoder skips line breaks and ignores the two spare bits: what it read must be written as it was.
	if !ok || err != nil || len(raw) != ownerBytes || ownerEncoding().EncodeToString(raw) != text {
		return wire.Errorf(wire.CodeBadRequest, "check owner %.96q: not u_ and 26 characters of [a-z2-7] that a derivation makes", s)
	}
	return nil
}

// Format writes a fixed word whatever the verb.
func (OwnerSecret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[owner secret]") }

// LogValue returns a fixed word.
func (OwnerSecret) LogValue() slog.Value { return slog.StringValue("[owner secret]") }

// MarshalText returns a fixed word, so that an encoder that walks into a secret writes nothing of use.
func (OwnerSecret) MarshalText() ([]byte, error) { return []byte("[owner secret]"), nil }

// OwnerSecretKey names the record of a space's owner secret.
func OwnerSecretKey(s wire.Space) string { return "auth/space." + hexName(s) + "/owner-secret.json" }

// ownerRecord is the form of the record.
type ownerRecord struct {
	Ver    int    `json:"ver"`
	Secret string `json:"secretB64"` // RFC 4648 section 4, with padding
}

// EnsureOwnerSecret returns the owner secret of a space and makes it if there is no record yet. Of several callers at once,
// all get the one that was written. What is there is never replaced, also not when it is damaged: another secret would make
// every person of the space a stranger to their own grants.
//
// Errors: as of [LoadOwnerSecret], but for not-found.
func EnsureOwnerSecret(ctx context.Context, store secret.Store, s wire.Space) (OwnerSecret, error) {
	have, err := LoadOwnerSecret(ctx, store, s)
	if !errors.Is(err, secret.ErrNotFound) {
		return have, err
	}
	fresh, err := GenerateOwnerSecret()
	if err != nil {
		return OwnerSecret{}, err
	}
	data, err := json.Marshal(ownerRecord{Ver: RecordVersion, Secret: base64.StdEncoding.EncodeToString(fresh.reveal())})
	if err != nil {
		return OwnerSecret{}, wire.Errorf(wire.CodeInternal, "encode record %q", OwnerSecretKey(s))
	}
	if err := store.Create(ctx, OwnerSecretKey(s), data); err != nil && !errors.Is(err, secret.ErrExists) {
		return OwnerSecret{}, storeFailed(ctx, "write", OwnerSecretKey(s), err)
	}
	return LoadOwnerSecret(ctx, store, s) // what the store gives back is what counts, whoever wrote it
}

// LoadOwnerSecret reads the owner secret of a space.
//
// Errors: bad-request for what is no space; not-found when there is no record; unavailable when the store does not answer;
// failed-precondition for a record that is damaged or not of this build, naming the record and nothing of its content.
func LoadOwnerSecret(ctx context.Context, store secret.Store, s wire.Space) (OwnerSecret, error) {
	if err := s.Validate(); err != nil {
		return OwnerSecret{}, err
	}
	name := OwnerSecretKey(s)
	data, err := store.Get(ctx, name)
	switch {
	case errors.Is(err, secret.ErrNotFound):
		return OwnerSecret{}, wire.Errorf(wire.CodeNotFound, "read record %q: %w; start the space with an identity provider first", name, secret.ErrNotFound)
	case err != nil:
		return OwnerSecret{}, storeFailed(ctx, "read", name, err)
	}
	var rec ownerRecord
	if err := decodeClosed(data, &rec, maxOwnerFile); err != nil {
		return OwnerSecret{}, refuse(name, "it is not the JSON that this build writes")
	}
	if rec.Ver != RecordVersion {
		return OwnerSecret{}, wire.Errorf(wire.CodeFailedPrecondition, "record %q has version %d, this build reads %d", name, rec.Ver, RecordVersion)
	}
	key, err := base64.StdEncoding.DecodeString(rec.Secret)
	if err != nil || len(key) != ownerSecret || base64.StdEncoding.EncodeToString(key) != rec.Secret {
		return OwnerSecret{}, refuse(name, "its secret is damaged")
	}
	return NewOwnerSecret(key)
}

func storeFailed(ctx context.Context, verb, record string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s record %q: %w", verb, record, err)
	}
	return wire.Errorf(wire.CodeUnavailable, "%s record %q: %w", verb, record, err)
}
