package field_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// dialers are the files that may open a connection to a broker. A tool that measures, or plays a foreign client, is no part of a mesh.
var (
	dialers = []string{"endpoint/connect.go", "internal/dial/dial.go"}
	tools   = []string{"internal/bench/", "broker/brokertest/"}
)

// keepTrying are the options without which the client of NATS gives up: after the same refusal twice, after sixty attempts, or in silence.
var keepTrying = []string{"IgnoreAuthErrorAbort", "MaxReconnects", "CustomReconnectDelay", "ErrorHandler", "Name", "CustomInboxPrefix", "ReconnectBufSize"}

// N17: every connection that our code opens sets the options that keep it trying. What is not on the list opens none.
func TestN17EveryConnectKeepsTrying(t *testing.T) {
	t.Parallel()
	root := must(filepath.Abs(filepath.Join("..", "..")))(t)
	found := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := filepath.ToSlash(must(filepath.Rel(root, path))(t))
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && name != "." || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		case slices.ContainsFunc(tools, func(tool string) bool { return strings.HasPrefix(name, tool) }):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		used := map[string]string{} // option to its argument, as far as it is a number
		ast.Inspect(file, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is {
				return true
			}
			sel, is := call.Fun.(*ast.SelectorExpr)
			if !is {
				return true
			}
			if pkg, is := sel.X.(*ast.Ident); !is || pkg.Name != "nats" {
				return true
			}
			used[sel.Sel.Name] = number(call)
			return true
		})
		if _, dials := used["Connect"]; !dials {
			if _, dials = used["GetDefaultOptions"]; !dials {
				return nil
			}
		}
		if !slices.Contains(dialers, name) {
			t.Errorf("%s connects to a broker; let endpoint or internal/dial do it", name)
			return nil
		}
		found[name] = true
		for _, option := range keepTrying {
			if _, set := used[option]; !set {
				t.Errorf("%s connects without nats.%s", name, option)
			}
		}
		if got := used["MaxReconnects"]; got != "-1" {
			t.Errorf("%s gives up after %s attempts", name, got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range dialers {
		if !found[name] {
			t.Errorf("%s opens no connection, so the list is out of date", name)
		}
	}
}

// number is the one argument of a call when it is a number, with its sign.
func number(call *ast.CallExpr) string {
	if len(call.Args) != 1 {
		return ""
	}
	switch arg := call.Args[0].(type) {
	case *ast.BasicLit:
		return arg.Value
	case *ast.UnaryExpr:
		if lit, is := arg.X.(*ast.BasicLit); is {
			return arg.Op.String() + lit.Value
		}
	}
	return ""
}
