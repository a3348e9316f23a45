package archtest_test

import (
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// subjectLiterals are the places outside wire that may spell a literal which begins with the root token, by file and
// literal prefix. Each says why it is not a subject of a space.
var subjectLiterals = []struct{ file, prefix, why string }{
	{"space/plan.go", "cotal.schema", "a metadata key of a stream"},
	{"internal/bench/message.go", "cotal.bench.", "the same work written directly on nats.go, to compare with"},
	{"internal/bench/request.go", "cotal.bench.", "the same work written directly on nats.go, to compare with"},
	{"internal/bench/member.go", "cotal.bench.", "the same work written directly on nats.go, to compare with"},
	{"internal/bench/process.go", "cotal.bench.", "the same work written directly on nats.go, to compare with"},
}

func TestSubjectsAreBuiltInWire(t *testing.T) {
	for _, s := range sources(t) {
		if s.Test || within(s.Dir, "wire", "internal/archtest") {
			continue
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ImportSpec:
				return false
			case *ast.BinaryExpr:
				if s.Path != "trust/profile.go" && n.Op == token.ADD && (isSelector(n.X, "wire", "Root") || isSelector(n.Y, "wire", "Root")) {
					t.Errorf("%s: builds a subject from wire.Root: use a builder of wire", s.at(n))
				}
			case *ast.BasicLit:
				text, err := strconv.Unquote(n.Value)
				if n.Kind != token.STRING || err != nil || !strings.HasPrefix(text, "cotal.") {
					return true
				}
				if isHostName(text) {
					return true
				}
				for _, a := range subjectLiterals {
					if a.file == s.Path && strings.HasPrefix(text, a.prefix) {
						return true
					}
				}
				t.Errorf("%s: literal %.60q begins with the root token: subjects are built in wire", s.at(n), text)
			}
			return true
		})
	}
}

// trust/profile.go builds the subjects of node commands, which live in the system account and not in a space.

// isHostName says whether a literal is a file name like cotal.yaml rather than a subject.
func isHostName(text string) bool {
	return slices.Contains([]string{"cotal.yaml", "cotal.json", "cotal.toml", "cotal.log", "cotal.pid", "cotal.sock"}, text)
}

func isSelector(e ast.Expr, pkgName, name string) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	return ok && id.Name == pkgName && (name == "" || sel.Sel.Name == name)
}

func TestNoInitFunctions(t *testing.T) {
	for _, s := range sources(t) {
		for _, d := range s.File.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: init function: assembly is explicit", s.at(f))
			}
		}
	}
}

// calls maps a forbidden selector to the folders that may use it outside tests.
var calls = []struct {
	pkg     string
	names   []string // empty: every name
	allowed []string
	rule    string
}{
	{"os", []string{"Exit"}, []string{"cmd", "examples"}, "only programs exit"},
	{"syscall", []string{"Exit"}, nil, "only programs exit"},
	{"log", nil, []string{"examples"}, "log through the injected slog.Logger"},
	{"fmt", []string{"Print", "Println", "Printf"}, []string{"examples"}, "only internal/cli prints, to the streams it was given"},
	{"os", []string{"Stdout", "Stderr", "Stdin"}, []string{"cmd", "internal/cli", "examples"}, "only internal/cli prints"},
	{"os", []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv"}, []string{"cmd", "internal/cli", "internal/config", "internal/archtest", "internal/bench", "examples", "supervisor/seat"}, "settings are read in internal/config, and a seat gets four named variables"},
	{"slog", []string{"Default", "SetDefault", "Info", "Warn", "Error", "Debug", "InfoContext", "WarnContext", "ErrorContext", "DebugContext"}, nil, "the logger is injected"},
	{"http", []string{"DefaultClient", "DefaultServeMux", "HandleFunc", "ListenAndServe"}, nil, "no shared state of the process"},
	{"signal", nil, []string{"cmd", "internal/cli", "examples", "supervisor/seat"}, "signals belong to programs, of which a seat is one"},
}

func TestForbiddenCalls(t *testing.T) {
	for _, s := range sources(t) {
		if s.Test {
			continue
		}
		imported := importNames(s.File)
		ast.Inspect(s.File, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if id, ok := call.Fun.(*ast.Ident); ok && (id.Name == "print" || id.Name == "println") {
					t.Errorf("%s: built-in %s", s.at(n), id.Name)
				}
			}
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			for _, c := range calls {
				if !isSelector(sel, c.pkg, "") || !imported[c.pkg] || within(s.Dir, c.allowed...) {
					continue
				}
				if len(c.names) == 0 || slices.Contains(c.names, sel.Sel.Name) {
					t.Errorf("%s: %s.%s: %s", s.at(n), c.pkg, sel.Sel.Name, c.rule)
				}
			}
			return true
		})
	}
}

// importNames are the names under which a file sees its imports, for standard packages whose name is the last element.
func importNames(f *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, imp := range f.Imports {
		p, err := strconv.Unquote(imp.Path.Value)
		if err != nil || imp.Name != nil {
			continue
		}
		names[path.Base(p)] = true
	}
	return names
}

// A file that ends so is read as "for GOOS=js" or "for GOARCH=wasm" and is left out without a word.
func TestNoFileIsLeftOutByItsName(t *testing.T) {
	for _, s := range sources(t) {
		name := strings.TrimSuffix(strings.TrimSuffix(path.Base(s.Path), ".go"), "_test")
		last := name[strings.LastIndex(name, "_")+1:]
		if strings.Contains(name, "_") && slices.Contains([]string{"js", "wasm", "plan9", "android", "ios", "aix", "arm", "386"}, last) {
			t.Errorf("%s: the name is a build constraint", s.Path)
		}
	}
}

func TestPackagesHaveComments(t *testing.T) {
	seen, documented := map[string]string{}, map[string]bool{}
	for _, s := range sources(t) {
		if s.Test {
			continue
		}
		seen[s.Dir] = s.File.Name.Name
		doc := s.File.Doc.Text()
		if doc == "" {
			continue
		}
		documented[s.Dir] = true
		if name := s.File.Name.Name; name != "main" && !strings.HasPrefix(doc, "Package "+name+" ") {
			t.Errorf("%s: package comment does not begin with %q", s.Path, "Package "+name)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(seen)) {
		if !documented[dir] {
			t.Errorf("package %s (%s) has no package comment", seen[dir], dir)
		}
	}
}

func TestExportedNamesAreDocumented(t *testing.T) {
	for _, s := range sources(t) {
		if s.Test || s.File.Name.Name == "main" {
			continue
		}
		for _, d := range s.File.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && exportedReceiver(d) && !obvious(d) {
					checkDoc(t, s, d, d.Name.Name, d.Doc)
				}
			case *ast.GenDecl:
				checkGroup(t, s, d)
			}
		}
	}
}

func checkGroup(t *testing.T, s source, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if spec.Name.IsExported() {
				doc := spec.Doc
				if doc == nil && len(d.Specs) == 1 {
					doc = d.Doc
				}
				checkDoc(t, s, spec, spec.Name.Name, doc)
			}
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				if name.IsExported() && spec.Doc.Text() == "" && spec.Comment.Text() == "" && d.Doc.Text() == "" {
					t.Errorf("%s: exported %s is not documented", s.at(name), name.Name)
				}
			}
		}
	}
}

func checkDoc(t *testing.T, s source, n ast.Node, name string, doc *ast.CommentGroup) {
	text := doc.Text()
	if text == "" {
		t.Errorf("%s: exported %s is not documented", s.at(n), name)
		return
	}
	for _, article := range []string{"", "A ", "An ", "The "} {
		if strings.HasPrefix(text, article+name) {
			return
		}
	}
	t.Errorf("%s: the comment of %s does not begin with its name: %.40q", s.at(n), name, text)
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	e := d.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return true
		}
	}
}

// obvious methods implement an interface everybody knows and may do without a comment.
func obvious(d *ast.FuncDecl) bool {
	return d.Recv != nil && slices.Contains([]string{"Error", "String", "Unwrap", "Format", "LogValue", "GoString", "MarshalText", "UnmarshalText", "MarshalJSON", "UnmarshalJSON", "Is"}, d.Name.Name)
}

// Words that mark unfinished work, split so that this file does not contain them.
var unfinished = []string{"TO" + "DO", "FIX" + "ME", "not " + "implemented yet"}

func TestNothingIsLeftUnfinished(t *testing.T) {
	for _, s := range sources(t) {
		for _, group := range s.File.Comments {
			for _, c := range group.List {
				for _, w := range unfinished {
					if strings.Contains(c.Text, w) {
						t.Errorf("%s: comment says %q", s.at(c), w)
					}
				}
			}
		}
	}
}
