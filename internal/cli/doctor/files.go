package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/internal/cli/command"
)

const (
	// others are the bits of a mode that records and seeds must not have, writers those that the folder around them must not have.
	others  fs.FileMode = 0o077
	writers fs.FileMode = 0o022
)

// exposed is a file or folder whose mode lets others in.
type exposed struct {
	path string
	mode fs.FileMode
}

// files looks at who may read what is secret. The store refuses what is not private, and so a mode that somebody changed
// keeps a mesh from starting.
func (x *examination) files() {
	if runtime.GOOS == "windows" { // access is left to the folder's access control list
		return
	}
	dir, before := x.t.Config.Project.Dir, len(x.out)
	entries, err := os.ReadDir(dir)
	if err != nil {
		x.add(auth.FindingFail, checkFiles, "see who owns it", "%v", err)
		return
	}
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&writers != 0 {
		x.close([]exposed{{dir, info.Mode().Perm()}}, writers, "chmod go-w "+command.Quote(dir), "and only its owner may write in it")
	}
	for _, e := range entries {
		if e.Name() == "auth" || strings.HasPrefix(e.Name(), "space.") {
			x.tree(filepath.Join(dir, e.Name()))
		}
	}
	x.state()
	if len(x.out) == before {
		x.add(auth.FindingOK, checkFiles, "", "nobody else can read the records and seeds")
	}
}

// state looks at the folder of the broker. Its mode alone shields what is in it, and who shares it may want to.
func (x *examination) state() {
	settings, err := x.t.Config.Project.Settings()
	if err != nil {
		return // told where they are needed
	}
	dir := x.t.Config.Project.StateOf(settings)
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&others != 0 {
		x.add(auth.FindingWarn, checkFiles, "chmod go-rwx "+command.Quote(dir), "%s has mode %s, and holds every message in the clear", dir, info.Mode().Perm())
	}
}

// tree looks at a folder and what is in it. What others may do in it is one finding, however much of it there is: one command closes all.
func (x *examination) tree(root string) {
	var open []exposed
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
		case err != nil:
			x.add(auth.FindingFail, checkFiles, "see who owns it", "%v", err)
		case !info.Mode().IsRegular() && !info.IsDir():
			x.open = true
			x.add(auth.FindingFail, checkFiles, "put what it stands for in its place", "%s is a link or the like, and the store follows none", path)
		case info.Mode().Perm()&others != 0:
			open = append(open, exposed{path, info.Mode().Perm()})
		}
		return nil
	})
	if err != nil {
		x.add(auth.FindingFail, checkFiles, "see who owns it", "%v", err)
	}
	switch len(open) {
	case 0:
	case 1:
		x.close(open, others, "chmod go-rwx "+command.Quote(open[0].path), "and is only for its owner")
	default:
		x.close(open, others, "chmod -R go-rwx "+command.Quote(root), fmt.Sprintf("and %d more in %s let others in; they are only for their owner", len(open)-1, root))
	}
}

// close tells of what others may do, and with --fix takes it from them.
func (x *examination) close(open []exposed, bits fs.FileMode, repair, says string) {
	f := auth.Finding{Check: checkFiles, Status: auth.FindingFail, Repair: repair + ", or cotal doctor auth --fix"}
	f.Text = fmt.Sprintf("%s has mode %s, %s", open[0].path, open[0].mode, says)
	if x.fix {
		var err error
		for _, e := range open {
			err = errors.Join(err, os.Chmod(e.path, e.mode&^bits))
		}
		if err == nil {
			f.Status, f.Fixed, f.Repair = auth.FindingOK, true, ""
			f.Text += "; whoever could reach it until now may have"
		} else {
			f.Text += "; it could not be repaired: " + err.Error()
			f.Repair = repair + ", as their owner"
		}
	}
	x.open = x.open || !f.Fixed
	x.out = append(x.out, f)
}

// refusedMode is how a store says that others could reach what it was asked for.
const refusedMode = "run chmod go-rwx on it"

// refusals is how the store says that it does not read what it was asked for: others could reach it, or it is a link.
func refusals() []string {
	return []string{refusedMode, "is not a regular file (", "is not a folder ("}
}

// read adds findings about what is in the files. Those that only say that the store refuses what was told before become one, which
// sends nobody to a backup.
func (x *examination) read(found []auth.Finding) {
	var unread []string
	for _, f := range found {
		if x.open && f.Status != auth.FindingOK && slices.ContainsFunc(refusals(), func(s string) bool { return strings.Contains(f.Text, s) }) {
			if !slices.Contains(unread, f.Check) {
				unread = append(unread, f.Check)
			}
			continue
		}
		x.out = append(x.out, f)
	}
	if len(unread) > 0 {
		x.add(auth.FindingWarn, auth.CheckRecords, "mend the files first, as said above, and look again",
			"not all could be looked at, since the store does not read such files: %s", strings.Join(unread, ", "))
	}
}
