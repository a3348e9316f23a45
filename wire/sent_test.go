package wire_test

import (
	"errors"
	"testing"

	"github.com/cotal-go/cotal/wire"
)

func TestSentFilter(t *testing.T) {
	ada := wire.Principal{Owner: wire.LocalOwner, Actor: "ada"}
	for kind, want := range map[wire.Kind]string{
		wire.KindChannel: "cotal.main.chat.local.ada.>",
		wire.KindDirect:  "cotal.main.inst.*.*.local.ada",
		wire.KindRole:    "cotal.main.svc.*.local.ada",
	} {
		if got, err := wire.SentFilter("main", kind, ada); err != nil || got != want {
			t.Errorf("SentFilter(main, %s, %s) = %q, %v, want %q", kind, ada, got, err, want)
		}
		if got, err := wire.ParseKind(kind.String()); err != nil || got != kind {
			t.Errorf("ParseKind(%q) = %s, %v", kind, got, err)
		}
	}
	for _, kind := range []wire.Kind{0, wire.KindLive, wire.KindMention, wire.KindEvent} {
		if got, err := wire.SentFilter("main", kind, ada); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("SentFilter of kind %s = %q, %v, want bad-request", kind, got, err)
		}
		if got, err := wire.ParseKind(kind.String()); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("ParseKind(%q) = %s, %v, want bad-request", kind, got, err)
		}
	}
	if got, err := wire.SentFilter("main", wire.KindDirect, wire.Principal{Owner: "*", Actor: ">"}); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("SentFilter of wildcards = %q, %v, want bad-request", got, err)
	}
}
