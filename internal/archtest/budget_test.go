package archtest_test

import (
	"go/ast"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	maxFunction = 80
	maxFile     = 500
	// maxObserver bounds the stripped example that links only endpoint.
	maxObserver = 12_000_000
)

// overBudget names functions and files above the budget, with the reason. The list may only shrink.
var overBudget = map[string]string{}

func TestBudgets(t *testing.T) {
	used := map[string]bool{}
	over := func(name, at string, lines, limit int) {
		if overBudget[name] != "" {
			used[name] = true
			t.Logf("%s: %s has %d lines, budget %d: %s", at, name, lines, limit, overBudget[name])
			return
		}
		t.Errorf("%s: %s has %d lines, budget %d", at, name, lines, limit)
	}
	long := 0
	for _, s := range sources(t) {
		if n := s.Fset.Position(s.File.FileEnd).Line; n > maxFile {
			over(s.Path, s.Path, n, maxFile)
		}
		for _, d := range s.File.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			lines := s.Fset.Position(f.End()).Line - s.Fset.Position(f.Pos()).Line + 1
			if lines > 40 && !s.Test {
				long++
			}
			if lines > maxFunction && s.Test {
				t.Logf("%s: test function %s has %d lines", s.at(f), f.Name.Name, lines)
			} else if lines > maxFunction {
				over(s.Path+":"+f.Name.Name, s.at(f), lines, maxFunction)
			}
		}
	}
	t.Logf("functions over 40 lines outside tests: %d", long)
	for name := range overBudget {
		if !used[name] {
			t.Errorf("%s is within the budget: take it off the list", name)
		}
	}
}

// TestObserverIsSmall builds the example that links only the client library, stripped, and weighs it.
func TestObserverIsSmall(t *testing.T) {
	top := root(t)
	if _, err := os.Stat(filepath.Join(top, "examples", "observer")); err != nil {
		t.Fatalf("the example whose size is promised is missing: %v", err)
	}
	bin := filepath.Join(t.TempDir(), "observer")
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", bin, "./examples/observer")
	cmd.Dir = top
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build examples/observer: %v\n%s", err, out)
	}
	info, err := os.Stat(bin)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("examples/observer, stripped: %.2f MB", float64(info.Size())/1e6)
	if info.Size() > maxObserver {
		t.Errorf("examples/observer is %d bytes, limit %d", info.Size(), maxObserver)
	}
}

// TestTestsDoNotSleep refuses time.Sleep in the tests of a package that opens no bubble, and bubbles opened past internal/faketime. In one that has, a sleep
// is fake; that each sleep is inside a bubble is for review.
func TestTestsDoNotSleep(t *testing.T) {
	bubbles := map[string]bool{}
	for _, s := range sources(t) {
		if s.Test && opensBubble(s.File) {
			bubbles[s.Dir] = true
		}
		if importsPath(s.File, "testing/synctest") && s.Dir != "internal/faketime" {
			ast.Inspect(s.File, func(n ast.Node) bool {
				if e, ok := n.(*ast.SelectorExpr); ok && isSelector(e, "synctest", "Test") {
					t.Errorf("%s: synctest.Test can crash under the race detector: use faketime.Test", s.at(n))
				}
				return true
			})
		}
	}
	for _, s := range sources(t) {
		if !s.Test || bubbles[s.Dir] {
			continue
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			if e, ok := n.(*ast.SelectorExpr); ok && isSelector(e, "time", "Sleep") {
				t.Errorf("%s: time.Sleep in a test: use internal/faketime or wait for the event", s.at(n))
			}
			return true
		})
	}
}

// opensBubble reports whether the file makes a bubble.
func opensBubble(f *ast.File) bool {
	found := false
	ast.Inspect(f, func(n ast.Node) bool {
		if e, ok := n.(*ast.SelectorExpr); ok && (isSelector(e, "cotaltest", "Bubble") || isSelector(e, "faketime", "Test")) {
			found = true
		}
		return !found
	})
	return found
}

func importsPath(f *ast.File, path string) bool {
	for _, imp := range f.Imports {
		if strings.Trim(imp.Path.Value, `"`) == path {
			return true
		}
	}
	return false
}
