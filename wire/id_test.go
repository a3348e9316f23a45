package wire_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/wire"
)

func TestAnIDSaysWhenItWasMade(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		first := wire.NewID()
		time.Sleep(time.Millisecond)
		second := wire.NewID()
		if first >= second {
			t.Errorf("ids %q and %q do not sort by time", first, second)
		}
		at, ok := wire.IDTime(second)
		if !ok || !at.Equal(time.Now()) {
			t.Errorf("IDTime(%q) = %s, %t, want %s", second, at, ok, time.Now())
		}
	})
	for _, foreign := range []string{"", "short", "UPPERCASE-IS-NOT-OURS-1234", "iiiiiiiiiaaaaaaaaaaaaaaaaa"} {
		if at, ok := wire.IDTime(foreign); ok {
			t.Errorf("IDTime(%q) = %s, want none", foreign, at)
		}
	}
}

func TestMentionPointers(t *testing.T) {
	for body, good := range map[string]bool{
		`{"v":1,"channel":"general","sequence":7,"sender":"local.ada"}`:   true,
		`{"v":1,"sequence":7,"sender":"local.ada"}`:                       true,
		`{"v":2,"channel":"general","sequence":7,"sender":"local.ada"}`:   false,
		`{"v":1,"channel":"general","sequence":0,"sender":"local.ada"}`:   false,
		`{"v":1,"channel":"*","sequence":7,"sender":"local.ada"}`:         false,
		`{"v":1,"channel":"general","sequence":7,"sender":"ada"}`:         false,
		`{"stream":"CHAT_main","seq":7}`:                                  false,
		`{"v":1,"v":1,"channel":"general","sequence":7,"sender":"a.b"}`:   false,
		`{"v":1,"channel":"general","sequence":7,"sender":"local.ada"} x`: false,
	} {
		if _, err := wire.DecodeMentionPointer([]byte(body)); (err == nil) != good {
			t.Errorf("DecodeMentionPointer(%s) = %v, want good %t", body, err, good)
		}
	}
	ada, long := wire.Principal{Owner: "local", Actor: "ada"}, strings.Repeat("abcdefghi.", 400)+"x"
	for channel, carried := range map[string]string{"general": "general", long: ""} {
		p := wire.NewMentionPointer(channel, 7, ada)
		if p.Channel != carried || !p.To(channel, 7) || p.To(channel, 8) || p.To("team", 7) != (carried == "") {
			t.Errorf("pointer to a channel of %d characters = %+v", len(channel), p)
		}
	}
	to := wire.Lifecycle{Principal: wire.Principal{Owner: "local", Actor: "bob"}, UID: wire.NewUID()}
	subject, err := wire.MentionRecord("main", to)
	if want := "$JS.EVENT.DLV_main.local.bob." + string(to.UID); err != nil || subject != want {
		t.Errorf("MentionRecord = %q, %v, want %q", subject, err, want)
	}
}
