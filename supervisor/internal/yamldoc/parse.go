package yamldoc

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a document. The parser takes time in the square of the brackets that are open, and of the lines of a block.
const (
	MaxBytes    = 64 << 10
	maxDepth    = 8
	maxBrackets = 1024
	maxLines    = 4096
)

// Kind says what a node is.
type Kind int

// The kinds. Empty is a key without a value.
const (
	Empty Kind = iota
	Scalar
	List
	Map
)

// Node is one value of a document.
type Node struct {
	Kind Kind
	At   Place
	// Text is a scalar as it is meant: quotes and escapes are resolved, and the line ends after a block are gone. 7 and true are
	// texts like any other.
	Text string
	// Items are those of a list, Fields those of a map, in the order of the file.
	Items  []*Node
	Fields []Field
}

// Field is one entry of a map.
type Field struct {
	Key   string
	At    Place
	Value *Node
}

// Parse reads one document whose first line is firstLine of the file. The result is nil when there is nothing, or nothing that
// could be read; the report then says why.
func Parse(file string, data []byte, firstLine int, r *Report) *Node {
	c := converter{file: file, offset: firstLine - 1, report: r}
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	if !c.bounded(data) {
		return nil
	}
	parsed, err := c.parse(data)
	if err != nil {
		c.syntax(err)
		return nil
	}
	if len(parsed.Docs) > 1 {
		at := c.place(nil)
		if d := parsed.Docs[1]; d.Start != nil {
			at = c.place(d.Start)
		} else if d.Body != nil {
			at = c.place(d.Body.GetToken())
		}
		r.Add(at, "keep one, and remove the lines --- and ...", "more than one document")
		return nil
	}
	if len(parsed.Docs) == 0 {
		return nil
	}
	n := c.node(parsed.Docs[0].Body, 1)
	if n == nil || n.Kind == Empty {
		return nil
	}
	return n
}

type converter struct {
	file   string
	offset int
	report *Report
}

func (c *converter) place(t *token.Token) Place {
	if t == nil || t.Position == nil {
		return Place{File: c.file, Line: c.offset + 1, Column: 1}
	}
	return Place{File: c.file, Line: t.Position.Line + c.offset, Column: t.Position.Column}
}

// bounded refuses what would take the parser long, or has characters that no text of ours has.
func (c *converter) bounded(data []byte) bool {
	at := Place{File: c.file, Line: c.offset + 1, Column: 1}
	if len(data) > MaxBytes {
		c.report.Add(at, "", "%d bytes, want at most %d", len(data), MaxBytes)
		return false
	}
	if bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) > maxBrackets {
		c.report.Add(at, "write lists and maps one entry a line", "more than %d brackets", maxBrackets)
		return false
	}
	line := c.offset
	for text := range bytes.Lines(data) {
		line++
		at := Place{File: c.file, Line: line, Column: 1}
		if !utf8.Valid(text) || bytes.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' && r != '\n' || r == 0x7f || r == 0xfeff }) {
			c.report.Add(at, "save the file as UTF-8 text", "a control character, or not UTF-8")
			return false
		}
		if lead := bytes.TrimLeft(text, " "); bytes.HasPrefix(lead, []byte("- - -")) || bytes.HasPrefix(lead, []byte("? ")) {
			c.report.Add(at, "", "lists in lists, and keys that are not names, mean nothing here")
			return false
		}
		if line-c.offset > maxLines {
			c.report.Add(at, "", "more than %d lines", maxLines)
			return false
		}
	}
	return true
}

// parse calls the parser, and takes a bug of it for a syntax error.
func (c *converter) parse(data []byte) (f *ast.File, err error) {
	defer func() {
		if v := recover(); v != nil {
			f, err = nil, fmt.Errorf("not readable as YAML")
		}
	}()
	return parser.ParseBytes(data, parser.ParseComments, parser.AllowDuplicateMapKey())
}

func (c *converter) syntax(err error) {
	var s interface {
		GetToken() *token.Token
		GetMessage() string
	}
	if errors.As(err, &s) {
		c.report.Add(c.place(s.GetToken()), "", "not YAML: %s", oneLine(s.GetMessage()))
		return
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	c.report.Add(c.place(nil), "", "not YAML: %s", oneLine(first))
}

func oneLine(s string) string {
	return Clip(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s))
}

// node converts; what is refused becomes an empty node.
func (c *converter) node(from ast.Node, depth int) *Node {
	if from == nil {
		return nil
	}
	n := &Node{At: c.place(from.GetToken())}
	if depth > maxDepth {
		c.report.Add(n.At, "", "more than %d levels", maxDepth)
		return n
	}
	switch v := from.(type) {
	case *ast.NullNode, *ast.CommentGroupNode:
	case *ast.MappingNode:
		c.fields(n, v.Values, depth)
	case *ast.MappingValueNode:
		c.fields(n, []*ast.MappingValueNode{v}, depth)
	case *ast.SequenceNode:
		n.Kind = List
		for _, item := range v.Values {
			if child := c.node(item, depth+1); child != nil {
				n.Items = append(n.Items, child)
			}
		}
	case *ast.StringNode:
		n.Kind, n.Text = Scalar, v.Value
	case *ast.LiteralNode:
		n.Kind, n.Text = Scalar, strings.TrimRight(v.Value.Value, "\n")
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		n.Kind, n.Text = Scalar, from.GetToken().Value
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		c.report.Add(n.At, "write it out, or put it in quotes if it is a text", "anchors and aliases (& * <<) are not taken")
	case *ast.TagNode:
		c.report.Add(n.At, "put it in quotes if it is a text", "tags (!) are not taken")
	default:
		c.report.Add(n.At, "", "not taken here")
	}
	return n
}

func (c *converter) fields(n *Node, values []*ast.MappingValueNode, depth int) {
	n.Kind = Map
	for i, v := range values {
		at := c.place(v.Key.GetToken())
		if i == 0 {
			n.At = at
		}
		key := ""
		switch k := v.Key.(type) {
		case *ast.StringNode:
			key = k.Value
		case *ast.IntegerNode, *ast.BoolNode, *ast.FloatNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
			key = v.Key.GetToken().Value
		default:
			c.report.Add(at, "write it out", "the key is not a name")
			continue
		}
		value := c.node(v.Value, depth+1)
		if value == nil {
			value = &Node{At: at}
		}
		n.Fields = append(n.Fields, Field{Key: key, At: at, Value: value})
	}
}
