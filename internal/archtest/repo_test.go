package archtest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/cotal-go/cotal"

// pkg is what `go list` says about one package of this module. Path is relative to the module; the root is ".".
type pkg struct {
	ImportPath   string
	Name         string
	Dir          string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
	Path         string `json:"-"`
}

// source is one parsed Go file. Path is slash-separated and relative to the module; Dir is its folder.
type source struct {
	Path string
	Dir  string
	Test bool
	File *ast.File
	Fset *token.FileSet
}

// at renders the position of n for a failure message.
func (s source) at(n ast.Node) string {
	p := s.Fset.Position(n.Pos())
	return s.Path + ":" + strconv.Itoa(p.Line)
}

func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = up
	}
}

type listed struct {
	pkgs []pkg
	err  error
}

var list = sync.OnceValue(func() listed {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Name,Dir,Imports,TestImports,XTestImports,Deps", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return listed{err: errors.New(stderr.String())}
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return listed{pkgs: all}
		} else if err != nil {
			return listed{err: err}
		}
		p.Path = relative(p.ImportPath)
		all = append(all, p)
	}
})

// packages lists the packages of this module.
func packages(t testing.TB) []pkg {
	t.Helper()
	l := list()
	if l.err != nil {
		t.Fatalf("go list: %v", l.err)
	}
	if len(l.pkgs) == 0 {
		t.Fatal("go list: no packages")
	}
	return l.pkgs
}

// relative turns an import path of this module into a path below it, and returns "" for any other.
func relative(importPath string) string {
	if importPath == module {
		return "."
	}
	rest, ok := strings.CutPrefix(importPath, module+"/")
	if !ok {
		return ""
	}
	return rest
}

type parsed struct {
	files []source
	err   error
}

// sources parses every Go file of the module, whatever system it is built for. The result is shared: do not change it.
func sources(t testing.TB) []source {
	t.Helper()
	p := parse(root(t))
	if p.err != nil {
		t.Fatalf("parse sources: %v", p.err)
	}
	return p.files
}

var (
	fileSet = token.NewFileSet()
	parse   = once(parseAll)
)

// once keeps the first result of f: there is one module, so one argument.
func once(f func(string) parsed) func(string) parsed {
	var mu sync.Mutex
	var done *parsed
	return func(top string) parsed {
		mu.Lock()
		defer mu.Unlock()
		if done == nil {
			p := f(top)
			done = &p
		}
		return *done
	}
}

func parseAll(top string) parsed {
	var out []source
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != top && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		file, err := parser.ParseFile(fileSet, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		dir := "."
		if i := strings.LastIndex(rel, "/"); i >= 0 {
			dir = rel[:i]
		}
		out = append(out, source{Path: rel, Dir: dir, Test: strings.HasSuffix(name, "_test.go"), File: file, Fset: fileSet})
		return nil
	})
	return parsed{files: out, err: err}
}

// within says whether dir is one of the folders or below one.
func within(dir string, folders ...string) bool {
	for _, f := range folders {
		if dir == f || strings.HasPrefix(dir, f+"/") {
			return true
		}
	}
	return false
}
