package oidc

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// object is a JSON object as its members, in order, still encoded. Names match by exact case, which encoding/json does
// not do, and other people's members of any name are let be.
type object []member

type member struct {
	name string
	raw  []byte
}

var errObject = errors.New("not a JSON object that can be read in one way only")

// checked is decoded into for the checks of wire.Decode alone.
type checked struct{}

func (*checked) UnmarshalJSON([]byte) error { return nil }

// decodeObject splits data, which it keeps. It refuses what wire.Decode refuses: more than limit bytes, a name twice in an
// object at any depth, characters that are none, deep nesting, anything after the object.
func decodeObject(data []byte, limit int) (object, error) {
	if err := wire.Decode(data, new(checked), limit); err != nil {
		return nil, errObject
	}
	return split(data)
}

// split cuts valid JSON into the members of its object.
func split(data []byte) (object, error) {
	data = bytes.Trim(data, " \t\r\n")
	if len(data) < 2 || data[0] != '{' || data[len(data)-1] != '}' {
		return nil, errObject
	}
	data = data[1 : len(data)-1]
	o := make(object, 0, 24)
	for {
		data = bytes.TrimLeft(data, " \t\r\n,")
		if len(data) == 0 {
			return o, nil
		}
		n := valueEnd(data)
		name, ok := text(data[:n])
		data = bytes.TrimLeft(data[n:], " \t\r\n:")
		if !ok || len(data) == 0 {
			return nil, errObject
		}
		n = valueEnd(data)
		o = append(o, member{name, bytes.TrimRight(data[:n], " \t\r\n")})
		data = data[n:]
	}
}

// valueEnd is the length of the value at the start of valid JSON; for a number or word it may count the space after it.
func valueEnd(data []byte) int {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return min(i+1, len(data))
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		case ',':
			if depth == 0 {
				return i
			}
		}
	}
	return len(data)
}

// get returns the value of a name, nil when it is not there.
func (o object) get(name string) []byte {
	for i := range o {
		if o[i].name == name {
			return o[i].raw
		}
	}
	return nil
}

// has reports whether the name is there, whatever its value.
func (o object) has(name string) bool { return o.get(name) != nil }

// text returns the string under a name, empty when it is not there; false when it is there and no string.
func (o object) text(name string) (string, bool) {
	raw := o.get(name)
	if raw == nil {
		return "", true
	}
	return text(raw)
}

// texts returns the list of strings under a name, nil when it is not there; false when it is there and something else.
func (o object) texts(name string) ([]string, bool) {
	raw := o.get(name)
	if raw == nil {
		return nil, true
	}
	return texts(raw)
}

// date returns the NumericDate of RFC 7519 section 2 under a name, the zero time when it is not there; false when it is
// there and no moment between 1970 and 9999. Fractions of a second are dropped.
func (o object) date(name string) (time.Time, bool) {
	raw := o.get(name)
	if raw == nil {
		return time.Time{}, true
	}
	seconds, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || !(seconds >= 0 && seconds <= maxDate) {
		return time.Time{}, false
	}
	return time.Unix(int64(math.Floor(seconds)), 0), true
}

const maxDate = 253402300799 // the last second of the year 9999

func text(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	var s string
	return s, json.Unmarshal(raw, &s) == nil
}

func texts(raw []byte) ([]string, bool) {
	var items []json.RawMessage
	if len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &items) != nil {
		return nil, false
	}
	list := make([]string, len(items))
	for i, item := range items {
		s, ok := text(item)
		if !ok {
			return nil, false
		}
		list[i] = s
	}
	return list, true
}
