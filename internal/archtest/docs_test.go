package archtest_test

import (
	"fmt"
	"go/ast"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// requirementID is how SPEC.md marks a requirement: [SUB-3].
	requirementID = regexp.MustCompile(`\[([A-Z]+-[0-9]+)\]`)
	// proofName is how documents name a proof in backticks: a test as `wire:TestParse` (folder, function and, after a slash,
	// a subtest), or a vector or script as a path that contains testdata or conformance.
	proofTest = regexp.MustCompile("^([a-z0-9/._-]+):((?:Test|Fuzz|Example|Benchmark)[A-Za-z0-9_]*)((?:/[A-Za-z0-9_ ./-]+)?)$")
	backtick  = regexp.MustCompile("`([^`\n]+)`")
	normative = regexp.MustCompile(`\b(MUST|SHALL|REQUIRED)\b`)
)

// TestSpecRequirementsNameTheirProof reads SPEC.md: every paragraph, list item or table row that says MUST carries an ID, every
// ID stands once in the proof table at the end, and every proof there exists.
func TestSpecRequirementsNameTheirProof(t *testing.T) {
	body, table, ok := strings.Cut(read(t, filepath.Join(root(t), "SPEC.md")), "\n## Proofs\n")
	if !ok {
		t.Fatal("SPEC.md has no section Proofs")
	}
	defined := map[string]bool{}
	for _, b := range blocks(body) {
		ids := requirementID.FindAllStringSubmatch(b, -1)
		musts := normative.FindAllString(b, -1)
		if len(musts) > 0 && len(ids) == 0 && !strings.Contains(b, "RFC 2119") {
			t.Errorf("SPEC.md: requirement without an ID: %.100q", b)
		}
		for _, m := range ids {
			if defined[m[1]] && strings.HasPrefix(strings.TrimLeft(b, "-*|0123456789. "), m[0]) {
				t.Errorf("SPEC.md: %s is defined twice", m[1])
			}
			defined[m[1]] = true
		}
	}
	if len(defined) == 0 {
		t.Fatal("SPEC.md states no requirement")
	}
	proven := map[string]bool{}
	known := proofs(t)
	for line := range strings.Lines(table) {
		m := requirementID.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if proven[m[1]] {
			t.Errorf("SPEC.md: two proof rows for %s", m[1])
		}
		proven[m[1]] = true
		if !defined[m[1]] {
			t.Errorf("SPEC.md: a proof row for %s, which no requirement carries", m[1])
		}
		named := backtick.FindAllStringSubmatch(line, -1)
		if len(named) == 0 {
			t.Errorf("SPEC.md: the proof row of %s names nothing", m[1])
		}
		for _, n := range named {
			if err := known.check(n[1]); err != nil {
				t.Errorf("SPEC.md: proof of %s: %v", m[1], err)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(defined)) {
		if !proven[id] {
			t.Errorf("SPEC.md: %s has no row in the proof table", id)
		}
	}
}

// TestThreatsNameTheirGuard checks that every test that another document names exists.
func TestThreatsNameTheirGuard(t *testing.T) {
	known := proofs(t)
	for _, doc := range []string{"docs/threat-model.md", "docs/operations.md", "docs/architecture.md", "docs/rough-edges.md"} {
		text := read(t, filepath.Join(root(t), filepath.FromSlash(doc)))
		for _, m := range backtick.FindAllStringSubmatch(text, -1) {
			if !proofTest.MatchString(m[1]) && !strings.Contains(m[1], "/testdata/") {
				continue
			}
			if err := known.check(m[1]); err != nil {
				t.Errorf("%s: %v", doc, err)
			}
		}
	}
}

// blocks splits Markdown into paragraphs, list items and table rows, leaving out fenced code.
func blocks(text string) []string {
	var out []string
	var cur strings.Builder
	flush := func() {
		if cur.Len() > 0 {
			out = append(out, cur.String())
			cur.Reset()
		}
	}
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			fenced = !fenced
			flush()
			continue
		}
		if fenced {
			continue
		}
		if trimmed == "" || strings.HasPrefix(trimmed, "#") {
			flush()
			continue
		}
		if strings.HasPrefix(trimmed, "- ") || strings.HasPrefix(trimmed, "* ") || strings.HasPrefix(trimmed, "|") || listNumber.MatchString(trimmed) {
			flush()
		}
		cur.WriteString(line + "\n")
	}
	flush()
	return out
}

var listNumber = regexp.MustCompile(`^[0-9]+\. `)

// proofIndex knows the tests of every folder: function names and the string literals that could name a subtest.
type proofIndex struct {
	top   string
	funcs map[string]map[string]bool
	words map[string]map[string]bool
}

func proofs(t testing.TB) proofIndex {
	t.Helper()
	x := proofIndex{root(t), map[string]map[string]bool{}, map[string]map[string]bool{}}
	for _, s := range sources(t) {
		if !s.Test {
			continue
		}
		if x.funcs[s.Dir] == nil {
			x.funcs[s.Dir], x.words[s.Dir] = map[string]bool{}, map[string]bool{}
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				x.funcs[s.Dir][n.Name.Name] = true
			case *ast.BasicLit:
				x.words[s.Dir][strings.ReplaceAll(strings.Trim(n.Value, "\"`"), " ", "_")] = true
			}
			return true
		})
	}
	return x
}

func (x proofIndex) check(name string) error {
	m := proofTest.FindStringSubmatch(name)
	if m == nil {
		if !strings.Contains(name, "/") {
			return fmt.Errorf("%q is neither a test nor a path", name)
		}
		if _, err := os.Stat(filepath.Join(x.top, filepath.FromSlash(name))); err != nil {
			return fmt.Errorf("no file %q", name)
		}
		return nil
	}
	dir := m[1]
	if dir == "cotal" {
		dir = "."
	}
	if !x.funcs[dir][m[2]] {
		return fmt.Errorf("no test %s in folder %s", m[2], dir)
	}
	if sub := strings.TrimPrefix(m[3], "/"); sub != "" && !x.words[dir][strings.ReplaceAll(sub, " ", "_")] {
		return fmt.Errorf("no subtest %q in folder %s", sub, dir)
	}
	return nil
}

func TestDecisionRecords(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root(t), "docs", "adr", "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no decision records: %v", err)
	}
	slices.Sort(files)
	for i, f := range files {
		name, text := filepath.Base(f), read(t, f)
		number := fmt.Sprintf("%04d", i+1)
		if !strings.HasPrefix(name, number+"-") || !strings.HasPrefix(text, "# "+number+" ") {
			t.Errorf("%s: expected number %s in the name and the title", name, number)
		}
		for _, want := range []string{"\nStatus: ", "\n## Context\n", "\n## Decision\n", "\n## What we give up\n", "\n## Alternatives\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q", name, strings.TrimSpace(want))
			}
		}
		if n := strings.Count(text, "\n"); n > 75 {
			t.Errorf("%s: %d lines, a record is one page", name, n)
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestLinksResolve follows the relative links between the documents.
func TestLinksResolve(t *testing.T) {
	top := root(t)
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		for _, m := range link.FindAllStringSubmatch(read(t, path), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			file := path
			if target != "" {
				file = filepath.Join(filepath.Dir(path), filepath.FromSlash(target))
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: broken link %q", path, m[1])
			} else if anchor != "" && filepath.Ext(file) == ".md" && !slices.Contains(anchors(read(t, file)), anchor) {
				t.Errorf("%s: no heading for %q", path, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

var notAnchor = regexp.MustCompile(`[^a-z0-9 _-]`)

// anchors are the heading names of a Markdown file as a link spells them.
func anchors(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			h := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
			out = append(out, strings.ReplaceAll(notAnchor.ReplaceAllString(h, ""), " ", "-"))
		}
	}
	return out
}
