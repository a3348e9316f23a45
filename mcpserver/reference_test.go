package mcpserver_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cotal-go/cotal/cotaltest"
)

var update = flag.Bool("update", false, "write the pages that tests compare")

const toolsIntro = `# Tools

<!-- Generated from the program: go test ./mcpserver -run TestReference -update -->

What an agent does in a space, as ` + "`cotal mcp`" + ` serves it to its host over the Model Context Protocol. ADR 0028 says why it is so.

A call with an argument that is not listed, of another type or given twice is refused and does nothing. Who speaks is never an argument: that
is what the credential says. A result is text; a refusal begins with one of the codes of [errors.md](errors.md) and says what state was left. Of
what others wrote every line begins with "| ", under a line of this program that names its sender as the broker verified it.

` + "`cotal_spawn` and `cotal_persona`" + ` are there when the credential may start agents. Without that right ` + "`cotal_despawn`" + ` ends only the agent itself.

`

// TestReference fails when docs/reference/tools.md no longer says what the tools are.
func TestReference(t *testing.T) {
	m := cotaltest.New(t, nil)
	_, all := names(t, newAgent(t, m, "ada", setup{peer: cotaltest.Peer{Request: spawner()}}))
	var b strings.Builder
	b.WriteString(toolsIntro)
	slices.SortFunc(all, func(x, y *mcp.Tool) int { return strings.Compare(x.Name, y.Name) })
	for _, tool := range all {
		fmt.Fprintf(&b, "## %s\n\n%s\n\n", tool.Name, tool.Description)
		writeArguments(&b, schemaOf(t, tool))
	}
	path := filepath.Join("..", "docs", "reference", "tools.md")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.String(), string(have)); diff != "" {
		t.Errorf("%s differs from the program (-program +page); write it with -update:\n%s", path, diff)
	}
}

func writeArguments(b *strings.Builder, schema map[string]any) {
	properties, _ := schema["properties"].(map[string]any) // a tool without arguments has none
	if len(properties) == 0 {
		b.WriteString("No arguments.\n\n")
		return
	}
	required, _ := schema["required"].([]any)
	var keys []string
	for k := range properties {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(x, y string) int {
		if a, c := slices.Contains(required, any(x)), slices.Contains(required, any(y)); a != c {
			if a {
				return -1
			}
			return 1
		}
		return strings.Compare(x, y)
	})
	b.WriteString("| argument | type | required | meaning |\n| --- | --- | --- | --- |\n")
	for _, k := range keys {
		p, _ := properties[k].(map[string]any)
		need := ""
		if slices.Contains(required, any(k)) {
			need = "yes"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", k, typeOf(p), need, strings.ReplaceAll(fmt.Sprint(p["description"]), "|", "\\|"))
	}
	b.WriteString("\n")
}

// typeOf is the type of a property for a reader.
func typeOf(p map[string]any) string {
	switch v := p["type"].(type) {
	case string:
		return v
	case []any: // null and the type itself, of what may be left out
		switch {
		case slices.Contains(v, any("array")):
			return "array of strings"
		case slices.Contains(v, any("integer")):
			return "integer"
		}
	}
	return "any"
}
