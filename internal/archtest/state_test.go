package archtest_test

import (
	"errors"
	"go/ast"
	"go/token"
	"go/types"
	"strings"
	"testing"
)

// packageState names package-level variables that may change or synchronize after start, with the reason.
var packageState = map[string]string{
	"wire.layouts":           "a cache of how Go types are laid out: the same whatever is asked first",
	"internal/faketime.open": "how many processors the process has is the state of the process",
}

// TestNoPackageState refuses package-level variables that are registries in waiting: assigned or indexed into by a
// function, or of a type whose only use is shared state. Immutable tables are fine.
func TestNoPackageState(t *testing.T) {
	byDir := map[string][]source{}
	for _, s := range sources(t) {
		if !s.Test && !within(s.Dir, "examples") {
			byDir[s.Dir] = append(byDir[s.Dir], s)
		}
	}
	for dir, files := range byDir {
		checkState(t, dir, files)
	}
}

func checkState(t *testing.T, dir string, files []source) {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: noImports{}, Error: func(error) {}, DisableUnusedImportCheck: true}
	var parsed []*ast.File
	for _, s := range files {
		parsed = append(parsed, s.File)
	}
	// Imports are unknown and files of several systems clash: names of this package resolve all the same.
	scope, _ := conf.Check(dir, fileSet, parsed, info)
	level := func(id *ast.Ident) bool {
		v, ok := info.Uses[id].(*types.Var)
		return ok && scope != nil && v.Parent() == scope.Scope()
	}
	for _, s := range files {
		for _, d := range s.File.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
				checkSharedTypes(t, dir, s, g)
			}
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			var targets []ast.Expr
			switch n := n.(type) {
			case *ast.AssignStmt:
				targets = n.Lhs
			case *ast.IncDecStmt:
				targets = []ast.Expr{n.X}
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "delete" || id.Name == "clear") && len(n.Args) > 0 {
					targets = n.Args[:1]
				}
			}
			for _, e := range targets {
				if id := rootIdent(e); id != nil && level(id) && packageState[dir+"."+id.Name] == "" {
					t.Errorf("%s: changes package variable %s: no package state", s.at(n), id.Name)
				}
			}
			return true
		})
	}
}

// checkSharedTypes refuses variables of synchronization types: they guard or are state of the package.
func checkSharedTypes(t *testing.T, dir string, s source, g *ast.GenDecl) {
	for _, spec := range g.Specs {
		v, ok := spec.(*ast.ValueSpec)
		if !ok {
			continue
		}
		exprs := append([]ast.Expr{}, v.Values...)
		if v.Type != nil {
			exprs = append(exprs, v.Type)
		}
		for _, e := range exprs {
			bad := ""
			switch e := e.(type) {
			case *ast.ChanType:
				bad = "a channel"
			case *ast.MapType:
				bad = "an empty map"
			case *ast.SelectorExpr:
				if isSelector(e, "sync", "") && !isSelector(e, "sync", "Pool") || isSelector(e, "atomic", "") {
					bad = "a " + e.Sel.Name
				}
			case *ast.IndexExpr:
				if isSelector(e.X, "atomic", "") {
					bad = "an atomic"
				}
			case *ast.CompositeLit:
				if isSelector(e.Type, "sync", "") && !isSelector(e.Type, "sync", "Pool") { // a pool holds memory, not state
					bad = "a sync value"
				}
			case *ast.CallExpr:
				if id, ok := e.Fun.(*ast.Ident); ok && id.Name == "make" {
					bad = "made empty"
				}
			}
			for _, name := range v.Names {
				if bad != "" && packageState[dir+"."+name.Name] == "" {
					t.Errorf("%s: package variable %s is %s: no package state", s.at(name), name.Name, bad)
				}
			}
		}
	}
}

func rootIdent(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}

type noImports struct{}

func (noImports) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	name := path[strings.LastIndex(path, "/")+1:]
	p := types.NewPackage(path, name)
	p.MarkComplete()
	if name == "" {
		return nil, errors.New("empty import path")
	}
	return p, nil
}
