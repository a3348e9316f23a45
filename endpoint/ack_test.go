package endpoint_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/cotal-go/cotal/endpoint"
)

func TestParseStored(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want endpoint.Stored
		ok   bool
	}{
		{`{"stream":"S","seq":1}`, endpoint.Stored{Stream: "S", Sequence: 1}, true},
		{`{"stream":"S","seq":18446744073709551615}`, endpoint.Stored{Stream: "S", Sequence: 1<<64 - 1}, true},
		{`{"stream":"S", "seq":7}`, endpoint.Stored{Stream: "S", Sequence: 7}, true},
		{`{"stream":"S","seq":7,"duplicate":true}`, endpoint.Stored{Stream: "S", Sequence: 7, Duplicate: true}, true},
		{`{"stream":"S","domain":"d","seq":7}`, endpoint.Stored{Stream: "S", Sequence: 7}, true},
		{`{"stream":"Other","seq":7}`, endpoint.Stored{Stream: "Other", Sequence: 7}, true},
		{`{"stream":"S","seq":}`, endpoint.Stored{}, false},
		{`{"stream":"S","seq":1`, endpoint.Stored{}, false},
		{`{"stream":"S"}`, endpoint.Stored{}, false},
		{`{}`, endpoint.Stored{}, false},
		{``, endpoint.Stored{}, false},
		{`null`, endpoint.Stored{}, false},
	} {
		got, err := endpoint.ParseStored([]byte(tt.in), "S")
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%s: %+v, %v", tt.in, got, err)
		}
	}
	got, err := endpoint.ParseStored([]byte(`{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"},"stream":"S","seq":0}`), "S")
	if err != nil || got.Error == nil || got.Error.ErrCode != 10077 {
		t.Errorf("refusal = %+v, %v", got, err)
	}
}

func TestParseOrigin(t *testing.T) {
	for _, tt := range []struct {
		in  string
		seq uint64
		ok  bool
	}{
		{"$JS.ACK.S.d.1.22.333.1700000000000000000.0", 22, true},
		{"$JS.ACK.domain.account.S.d.1.22.333.1700000000000000000.0.token", 22, true},
		{"$JS.ACK.S.other.1.22.333.1700000000000000000.0", 0, false},
		{"$JS.ACK.Other.d.1.22.333.1700000000000000000.0", 0, false},
		{"$JS.ACK.S.d.1.22.x.1700000000000000000.0", 0, false},
		{"$JS.ACK.S.d.1.22", 0, false},
		{"$JS.ACK.S.d", 0, false},
		{"$JS.ACK.", 0, false},
		{"_INBOX.x", 0, false},
		{"", 0, false},
	} {
		o, ok := endpoint.ParseOrigin(tt.in, "S", "d")
		delivered, seq, at := o.Fields()
		if ok != tt.ok || seq != tt.seq || ok && (delivered != 1 || !at.Equal(time.Unix(1700000000, 0))) {
			t.Errorf("%q: %+v, %v", tt.in, o, ok)
		}
	}
}

func FuzzParseStored(f *testing.F) {
	f.Add([]byte(`{"stream":"S","seq":12}`))
	f.Add([]byte(`{"stream":"S","seq":12,"duplicate":true}`))
	f.Add([]byte(`{"error":{"code":400,"description":"no"}}`))
	f.Add([]byte(`{"stream":"S","seq":00}`))
	f.Add([]byte(`{"stream":"S","seq":0}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := endpoint.ParseStored(data, "S")
		if err != nil {
			return
		}
		var want endpoint.Stored // whatever the fast path accepts, encoding/json reads the same
		if jerr := json.Unmarshal(data, &want); jerr != nil || got.Stream != want.Stream || got.Sequence != want.Sequence || got.Duplicate != want.Duplicate || got.Error == nil && got.Sequence == 0 {
			t.Errorf("%q: %+v, encoding/json %+v, %v", data, got, want, jerr)
		}
	})
}

func FuzzParseOrigin(f *testing.F) {
	f.Add("$JS.ACK.S.d.1.22.333.1700000000000000000.0")
	f.Add("$JS.ACK.domain.account.S.d.1.22.333.1700000000000000000.0.token")
	f.Fuzz(func(t *testing.T, reply string) {
		if o, ok := endpoint.ParseOrigin(reply, "S", "d"); !ok && o != (endpoint.Origin{}) {
			t.Errorf("%q: refused with %+v", reply, o)
		}
	})
}
