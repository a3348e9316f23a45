// Package buildinfo says which build of the program this is, from what the Go toolchain records in every binary.
//
// [Read] is the only entry. It promises an answer for every build: without version control data the fields are
// empty and the version is "devel". It holds no state and is safe for concurrent use.
package buildinfo

import (
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// devel is the version of a build that carries no module version.
const devel = "devel"

// Info describes one build.
type Info struct {
	// Version is the module version, or "devel".
	Version string `json:"version"`
	// Revision is the commit, empty when unknown. Modified says that the sources differed from it.
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	// Time is when the commit was made, zero when unknown.
	Time time.Time `json:"time,omitzero"`
	// Go is the toolchain, Platform the operating system and processor.
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Read reports the running build.
func Read() Info {
	info := Info{Version: devel, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if b, ok := debug.ReadBuildInfo(); ok {
		info.fill(b)
	}
	return info
}

// Version is the module version of the running build, or "devel".
func Version() string { return Read().Version }

func (info *Info) fill(b *debug.BuildInfo) {
	if v := b.Main.Version; v != "" && v != "(devel)" {
		info.Version = strings.TrimPrefix(v, "v")
	}
	for _, s := range b.Settings {
		switch s.Key {
		case "vcs.revision":
			info.Revision = s.Value
		case "vcs.modified":
			info.Modified = s.Value == "true"
		case "vcs.time":
			if t, err := time.Parse(time.RFC3339, s.Value); err == nil {
				info.Time = t.UTC()
			}
		}
	}
}
