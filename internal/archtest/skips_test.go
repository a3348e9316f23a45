package archtest_test

import (
	"go/ast"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// skips are the known calls of archtest.Skip and NotHere, by file and reason. Those of Skip are failures in CI.
var skips = map[string][]string{
	"conformance/js/js_test.go":           {"node is not installed", "the JavaScript NATS client is not installed: run conformance/js/setup"},
	"conformance/hosts/hosts_test.go":     {"the hosts of agents are not installed: run conformance/hosts/setup"},
	"trust/owner_test.go":                 {"node is not installed"},
	"broker/refuse_test.go":               {"permission bits do not bind this user", "permission bits say nothing on windows"},
	"internal/config/resolve_test.go":     {"Windows has no permission bits to look at"},
	"internal/launch/file_test.go":        {"files have no mode bits on this system"},
	"supervisor/connector/plugin_test.go": {"node is not installed"},
	"supervisor/process_test.go":          {"the mark of a seat is read from /proc"},
	"internal/cli/mcp/supervised_test.go": {"agents have no terminals on this system"},
	"internal/term/oracle_test.go":        {"tmux is not installed"},
	"supervisor/seat/field_test.go":       {"tmux is not installed"},
	"supervisor/seat/view_test.go":        {"vim, less or bash is not installed"},
	"supervisor/relay/seat_linux_test.go": {"vim is not installed"},
	"supervisor/seat/life_test.go":        {"the open files of a process are listed on linux only"},
	"internal/cli/full_linux_test.go":     {"only root can mount the filesystem that is filled"},
	"internal/fault/diskfull_test.go":     {"only root can mount the filesystem that is filled"},
	"internal/fault/power_test.go":        {"only root can mount the filesystem whose power is cut", "mkfs.ext4, mount or umount is not installed"},
	"internal/idptest/node.go":            {"node is not installed", "the identity providers in JavaScript are not installed: run conformance/idp/setup"},
}

// scriptSkips are test scripts that may skip, with the condition.
var scriptSkips = map[string]string{}

func TestSkipsAreKnown(t *testing.T) {
	found := map[string][]string{}
	for _, s := range sources(t) {
		if s.Path == "internal/archtest/skip.go" {
			continue
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			recv, _ := sel.X.(*ast.Ident)
			if recv == nil {
				return true
			}
			switch {
			case slices.Contains([]string{"t", "b", "f", "tb"}, recv.Name) && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name):
				t.Errorf("%s: %s.%s: use archtest.Skip with a reason", s.at(n), recv.Name, sel.Sel.Name)
			case recv.Name == "testing" && sel.Sel.Name == "Short":
				t.Errorf("%s: testing.Short: every run is a whole run", s.at(n))
			case recv.Name == "archtest" && (sel.Sel.Name == "Skip" || sel.Sel.Name == "NotHere"):
				found[s.Path] = append(found[s.Path], reason(t, s, call))
			}
			return true
		})
	}
	for file, reasons := range found {
		for _, r := range reasons {
			if !slices.Contains(skips[file], r) {
				t.Errorf("%s skips because %q: put it on the list of known skips", file, r)
			}
		}
	}
	for file, reasons := range skips {
		for _, r := range reasons {
			if !slices.Contains(found[file], r) {
				t.Errorf("%s no longer skips because %q: take it off the list", file, r)
			}
		}
	}
}

func reason(t *testing.T, s source, call *ast.CallExpr) string {
	if len(call.Args) > 1 {
		if lit, ok := call.Args[len(call.Args)-1].(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil && len(text) > 8 {
				return text
			}
		}
	}
	t.Errorf("%s: the last argument of archtest.Skip and NotHere is a constant reason", s.at(call))
	return ""
}

// TestScriptsDoNotSkip looks for the skip command of test scripts, which would pass without a word.
func TestScriptsDoNotSkip(t *testing.T) {
	top := root(t)
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.Contains(filepath.ToSlash(path), "/testdata/") || !slices.Contains([]string{".txt", ".txtar"}, filepath.Ext(path)) {
			return nil
		}
		rel, err := filepath.Rel(top, path)
		if err != nil || scriptSkips[filepath.ToSlash(rel)] != "" {
			return err
		}
		for line := range strings.Lines(read(t, path)) {
			if strings.HasPrefix(line, "-- ") {
				break
			}
			fields := strings.Fields(line)
			for len(fields) > 0 && strings.HasPrefix(fields[0], "[") {
				fields = fields[1:]
			}
			if len(fields) > 0 && fields[0] == "skip" {
				t.Errorf("%s skips", rel)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
