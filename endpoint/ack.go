package endpoint

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// stored is what the broker says about a publish to a stream.
type stored struct {
	Stream    string `json:"stream"`
	Sequence  uint64 `json:"seq"`
	Duplicate bool   `json:"duplicate"`
	Error     *struct {
		Code        int    `json:"code"`
		ErrCode     int    `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
}

// parseStored reads the broker's answer to a publish. The usual form is taken apart by hand: decoding it is otherwise
// a third of the client's work per message.
func parseStored(data []byte, stream string) (stored, error) {
	if rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`)); ok {
		if rest, ok = cutString(rest, stream); ok {
			if rest, ok = bytes.CutPrefix(rest, []byte(`","seq":`)); ok && len(rest) > 1 {
				digits, end := rest[:len(rest)-1], rest[len(rest)-1]
				if seq, err := strconv.ParseUint(string(digits), 10, 64); err == nil && end == '}' && digits[0] != '0' { // no number of JSON, or none of a message
					return stored{Stream: stream, Sequence: seq}, nil
				}
			}
		}
	}
	var s stored
	if err := json.Unmarshal(data, &s); err != nil || s.Error == nil && (s.Stream == "" || s.Sequence == 0) {
		return stored{}, wire.Errorf(wire.CodeInternal, "the broker's answer is not that of a stream")
	}
	return s, nil
}

func cutString(b []byte, prefix string) ([]byte, bool) {
	if len(b) < len(prefix) || string(b[:len(prefix)]) != prefix {
		return b, false
	}
	return b[len(prefix):], true
}

// Error codes of the broker's streams that mean something to callers.
const (
	jsErrResources        = 10023
	jsErrStorage          = 10047
	jsErrMaximumMessages  = 10054
	jsErrStreamStore      = 10077
	jsErrConsumerNotFound = 10014
	jsErrStreamNotFound   = 10059
)

// refusal is the error of a publish or request that a stream refused.
func (s stored) refusal(a act) *wire.Error {
	code := wire.CodeInternal
	switch s.Error.ErrCode {
	case jsErrResources, jsErrStorage, jsErrMaximumMessages, jsErrStreamStore:
		code = wire.CodeResourceExhausted
	case jsErrConsumerNotFound, jsErrStreamNotFound:
		code = wire.CodeNotFound
	default:
		switch s.Error.Code {
		case 503:
			code = wire.CodeUnavailable
		case 404:
			code = wire.CodeNotFound
		case 400:
			code = wire.CodeBadRequest
		}
	}
	err := wire.Errorf(code, "%s %q: the broker refuses: %s", a.verb, a.operand, s.Error.Description)
	err.Outcome = wire.OutcomeNotExecuted
	return err
}

// origin is what the reply subject of a stored message says about it.
type origin struct {
	delivered uint64 // 1 at the first delivery
	sequence  uint64
	at        time.Time
	left      uint64 // messages of the queue that were not handed out yet
}

// parseOrigin reads a reply subject of the consumer whose ack prefix is given:
// $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>. Newer brokers can put
// <domain>.<account> after $JS.ACK and more at the end; both are told by the names. It is false for any other subject,
// which must not be acknowledged.
func parseOrigin(reply, stream, durable string) (o origin, ok bool) {
	rest, ok := strings.CutPrefix(reply, "$JS.ACK.")
	if !ok {
		return o, false
	}
	first, rest := token(rest)
	if first != stream {
		_, rest = token(rest) // the account
		if first, rest = token(rest); first != stream {
			return o, false
		}
	}
	name, rest := token(rest)
	if name != durable {
		return o, false
	}
	var field [5]uint64
	for i := range field {
		var t string
		t, rest = token(rest)
		n, err := strconv.ParseUint(t, 10, 64)
		if err != nil {
			return o, false
		}
		field[i] = n
	}
	return origin{delivered: field[0], sequence: field[1], at: time.Unix(0, int64(field[3])), left: field[4]}, true
}

func token(s string) (first, rest string) {
	first, rest, _ = strings.Cut(s, ".")
	return first, rest
}
