package wire_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/cotal-go/cotal/wire"
)

func TestParseLiveFilter(t *testing.T) {
	for subject, want := range map[string]string{
		"cotal.main.live.*.*.general":   "general",
		"cotal.main.live.*.*.team.*":    "team.*",
		"cotal.main.live.*.*.team.>":    "team.>",
		"cotal.main.live.*.*.>":         ">",
		"cotal.main.live.*.>":           ">",
		"cotal.main.live.>":             ">",
		"cotal.main.live.local.ada.a":   "", // of one sender only
		"cotal.main.live.local.*.a":     "",
		"cotal.main.live.*.ada.a":       "",
		"cotal.main.live.*.*":           "",
		"cotal.main.live.*.*.":          "",
		"cotal.main.live.*.*.a..b":      "",
		"cotal.main.live.*.*.>.a":       "",
		"cotal.main.chat.*.*.general":   "",
		"cotal.other.live.*.*.general":  "",
		"cotal.mainx.live.*.*.general":  "",
		"cotal.main.liveness.*.*.a":     "",
		"":                              "",
		">":                             "",
		"$SYS.cotal.main.live.*.*.a":    "",
		"cotal.main.live.*.*.white spa": "",
	} {
		if got, ok := wire.ParseLiveFilter("main", subject); ok != (want != "") || ok && got != want {
			t.Errorf("ParseLiveFilter(%q) = %q, %v; want %q", subject, got, ok, want)
		}
	}
	// What LiveFilter builds is read back.
	rapid.Check(t, func(rt *rapid.T) {
		pattern := rapid.StringMatching(`([a-z]{1,3}|\*)(\.([a-z]{1,3}|\*)){0,3}(\.>)?`).Draw(rt, "pattern")
		subject, err := wire.LiveFilter("main", pattern)
		if err != nil {
			rt.Skip()
		}
		if got, ok := wire.ParseLiveFilter("main", subject); !ok || got != pattern {
			rt.Fatalf("ParseLiveFilter(%q) = %q, %v; want %q", subject, got, ok, pattern)
		}
	})
}
