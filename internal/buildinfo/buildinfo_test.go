package buildinfo_test

import (
	"runtime/debug"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/internal/buildinfo"
)

func TestFill(t *testing.T) {
	got := buildinfo.Fill(&debug.BuildInfo{
		Main: debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"},
			{Key: "vcs.time", Value: "2026-01-02T03:04:05+01:00"},
		},
	})
	want := buildinfo.Info{
		Version: "1.2.3", Revision: "abc", Modified: true,
		Time: time.Date(2026, 1, 2, 2, 4, 5, 0, time.UTC),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("build information (-want +got):\n%s", diff)
	}
}

func TestReadNeverEmpty(t *testing.T) {
	info := buildinfo.Read()
	if info.Version == "" || info.Go == "" || info.Platform == "" {
		t.Errorf("Read() = %+v, want version, toolchain and platform set", info)
	}
}
