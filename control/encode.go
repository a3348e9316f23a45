package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"sync"

	"github.com/cotal-go/cotal/wire"
)

// The broker's own answer, that nobody listens, comes to a reply subject with an instance and an epoch that no endpoint
// can have: [New] refuses the name.
const (
	sentinelInstance = "_"
	sentinelEpoch    = "0"
)

// nobody stands for a caller where only the tokens before it are wanted.
var nobody = wire.Lifecycle{Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "a"}, UID: "aaaaaaaaaaaaaaaaaaaaaaaaaa"}

// noNonce has the form of a nonce.
const noNonce = "aaaaaaaaaaaaaaaaaaaaaa"

// replyPrefix is a reply subject up to the four tokens of the caller and the nonce, which callerTokens finds at the end
// of the request subject.
func replyPrefix(space wire.Space, endpoint, instance, epoch string) (string, error) {
	r := wire.ReplySubject{Space: space, Endpoint: endpoint, Instance: instance, Epoch: epoch, Caller: nobody, Nonce: noNonce}
	subject, err := r.Subject()
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(subject, callerTokens(subject)), nil
}

// callerTokens returns the last four tokens of a request or reply subject: owner, actor, uid, nonce.
func callerTokens(subject string) string {
	i := len(subject)
	for range 4 {
		i = strings.LastIndexByte(subject[:i], '.')
	}
	return subject[i+1:]
}

// buffer is what requests and replies are encoded in: a value first, then its envelope. The NATS client copies what it
// is given to publish, so a buffer serves again at once.
type buffer struct {
	val bytes.Buffer
	enc *json.Encoder // into val
	out []byte
}

var bufferPool = sync.Pool{New: func() any {
	b := new(buffer)
	b.enc = json.NewEncoder(&b.val)
	b.enc.SetEscapeHTML(false)
	return b
}}

// maxPooled bounds the buffers that are kept.
const maxPooled = 64 << 10

func takeBuffer() *buffer { return bufferPool.Get().(*buffer) }

func (b *buffer) free() {
	if b.val.Cap() > maxPooled || cap(b.out) > maxPooled {
		return
	}
	b.val.Reset()
	b.out = b.out[:0]
	bufferPool.Put(b)
}

// value encodes v. A json.RawMessage is taken as it is. Nil and whatever encodes to null become nothing: an absent side
// and a null one are the same.
func (b *buffer) value(v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	raw, ok := v.(json.RawMessage)
	if !ok {
		b.val.Reset()
		if err := b.enc.Encode(v); err != nil {
			b.enc = json.NewEncoder(&b.val) // an encoder remembers its first error
			b.enc.SetEscapeHTML(false)
			return nil, err
		}
		raw = bytes.TrimSuffix(b.val.Bytes(), []byte("\n"))
	}
	if string(raw) == "null" {
		return nil, nil
	}
	return raw, nil
}

// envelope encodes a request or a reply into out, checked by the rules that its receiver decodes it with. Its value has
// n bytes. Errors have code resource-exhausted for too large, and others.
func (b *buffer) envelope(e interface{ AppendJSON([]byte) ([]byte, error) }, n, limit int) (err error) {
	if n <= limit {
		b.out, err = e.AppendJSON(b.out[:0])
	}
	if n > limit || errors.Is(err, wire.ErrExhausted) {
		e := wire.Errorf(wire.CodeResourceExhausted, "a value of %d bytes, limit %d with its envelope", n, limit)
		e.Details = map[string]any{"used": n, "limit": limit}
		return e
	}
	return err
}
