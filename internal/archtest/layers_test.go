package archtest_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A package may import lower layers, see docs/architecture.md. The longest matching folder decides; a folder stands for
// everything below it.
var layers = map[string]int{
	"wire": 0,

	"trust":  1,
	"secret": 1,
	"signer": 1,

	"trust/mint":          2,
	"trust/brokerconf":    2,
	"secret/filestore":    2,
	"secret/memstore":     2,
	"secret/secrettest":   2,
	"signer/signertest":   2,
	"broker":              2,
	"space":               2,
	"control":             2,
	"endpoint":            2,
	"internal/dial":       2,
	"auth":                3,
	"delivery":            3,
	"supervisor":          3,
	"mcpserver":           4,
	"dashboard":           4,
	"tui":                 4,
	".":                   5,
	"cotaltest":           5,
	"broker/brokertest":   5,
	"examples":            6,
	"conformance":         6,
	"internal/config":     6,
	"internal/cli":        6,
	"cmd":                 6,
	"internal/bench":      6,
	"internal/account":    6,
	"internal/attack":     6,
	"internal/spec":       6,
	"internal/fault":      6,
	"internal/field":      6,
	"internal/model":      6,
	"internal/race":       6,
	"internal/signin":     6,
	"internal/script":     6,
	"internal/idptest":    6,
	"internal/archtest":   0,
	"internal/buildinfo":  0,
	"internal/logkey":     0,
	"internal/still":      0,
	"internal/faketime":   0,
	"internal/pause":      0,
	"internal/near":       0,
	"internal/atomicfile": 0,
	"internal/plainfile":  0,
	"internal/fserr":      0,
	"internal/launch":     1,
	"internal/manager":    3,
	"internal/header":     0,
	"internal/inorder":    0,
	"internal/term":       0,
}

// sameLayer lists the edges inside one layer that are wanted, importer first.
var sameLayer = map[string][]string{
	"trust":        {"secret", "signer"},
	"endpoint":     {"control", "internal/dial"},
	"broker":       {"internal/dial"},
	"cotaltest":    {"."},
	"internal/cli": {"internal/config", "internal/bench", "internal/script"},
	"cmd":          {"internal/cli", "internal/config"},
}

// viewsMayImport bounds layer 4, which does not sit on the services below it.
var viewsMayImport = []string{"wire", "trust", "secret", "signer", "endpoint", "control", "internal/buildinfo", "internal/logkey", "internal/manager"}

func layerOf(path string) (folder string, layer int, ok bool) {
	for f, l := range layers {
		if (path == f || f != "." && strings.HasPrefix(path, f+"/")) && len(f) >= len(folder) {
			folder, layer, ok = f, l, true
		}
	}
	return folder, layer, ok
}

func TestLayers(t *testing.T) {
	for _, p := range packages(t) {
		from, layer, ok := layerOf(p.Path)
		if !ok {
			t.Errorf("package %s has no layer: name it in internal/archtest and docs/architecture.md", p.Path)
			continue
		}
		for _, imp := range p.Imports {
			path := relative(imp)
			if path == "" {
				continue
			}
			to, below, ok := layerOf(path)
			switch {
			case !ok, from == to, below < layer && (layer != 4 || slices.Contains(viewsMayImport, to)):
			case below == layer && slices.Contains(sameLayer[from], to):
			default:
				t.Errorf("%s (layer %d) imports %s (layer %d)", p.Path, layer, path, below)
			}
		}
	}
}

func TestServicesNeverImportEachOther(t *testing.T) {
	services := []string{"auth", "delivery", "supervisor"}
	for _, p := range packages(t) {
		for _, s := range services {
			if !within(p.Path, s) {
				continue
			}
			for _, dep := range p.Deps {
				path := relative(dep)
				if path != "" && within(path, services...) && !within(path, s) {
					t.Errorf("service %s links service %s: they meet on the wire", p.Path, path)
				}
			}
		}
	}
}

// closures are promises about everything a package links, however indirectly.
var closures = []struct {
	folder  string
	forbids []string
	why     string
}{
	{"endpoint", []string{"github.com/nats-io/nats-server", module + "/trust/mint", module + "/secret/filestore"}, "a client is small and unable to mint"},
	{"examples/observer", []string{"github.com/nats-io/nats-server", module + "/trust/mint"}, "it shows how small a client is"},
	{"examples/agent", []string{"github.com/nats-io/nats-server", module + "/trust/mint"}, "it shows how small a client is"},
	{"control", []string{"github.com/nats-io/nats-server", module + "/trust/mint"}, "endpoint links it"},
	{"auth/login", []string{"github.com/nats-io/nats-server", "github.com/nats-io/nats.go", module + "/trust/mint"}, "a client signs in with it"},
	{"auth/bearer", []string{"github.com/nats-io/nats-server", "github.com/nats-io/nats.go", module + "/trust/mint"}, "checking a bearer needs no connection"},
	{"auth/oidc", []string{"github.com/nats-io/nats-server", "github.com/nats-io/nats.go", module + "/trust/mint"}, "checking who somebody is needs no connection"},
	{"trust", []string{"github.com/nats-io/nats.go", "github.com/nats-io/nats-server"}, "checking a credential needs no connection"},
}

func TestClosures(t *testing.T) {
	for _, p := range packages(t) {
		for _, c := range closures {
			if p.Path != c.folder {
				continue
			}
			for _, dep := range p.Deps {
				for _, f := range c.forbids {
					if within(dep, f) {
						t.Errorf("%s links %s: %s", p.Path, dep, c.why)
					}
				}
			}
		}
	}
}

func TestWireLinksTheStandardLibraryOnly(t *testing.T) {
	for _, p := range packages(t) {
		if !within(p.Path, "wire") {
			continue
		}
		for _, dep := range p.Deps {
			first, _, _ := strings.Cut(dep, "/")
			if strings.Contains(first, ".") && !within(relative(dep), "wire") {
				t.Errorf("%s links %s", p.Path, dep)
			}
		}
	}
}

// importers names the folders that may import each external module outside tests. A module of the standard project set
// that is not here may be imported by nobody.
var importers = map[string][]string{
	"github.com/nats-io/nats-server/v2":           {"broker"},
	"github.com/nats-io/nats.go":                  {"broker", "space", "control", "endpoint", "auth", "delivery", "supervisor", "internal/dial", "internal/header", "internal/cli", "internal/bench", ".", "cotaltest"},
	"github.com/nats-io/jwt/v2":                   {"trust", "broker", "auth"},
	"github.com/nats-io/nkeys":                    {"trust", "signer", "broker", "auth", "supervisor"},
	"github.com/nats-io/nuid":                     {"internal/bench"},
	"github.com/synadia-io/orbit.go/jetstreamext": {"space", "delivery", "auth"},
	"github.com/spf13/pflag":                      {"internal/cli"},
	"github.com/spf13/cobra":                      {"internal/cli"},
	"github.com/google/jsonschema-go":             {"control", "delivery"},
	"github.com/gowebpki/jcs":                     {"control"},
	"github.com/gofrs/flock":                      {"secret/filestore", "internal/config", "internal/cli", "broker", "auth/login", "supervisor"},
	"github.com/cenkalti/backoff/v5":              {"internal/dial", "endpoint", "auth/login", "space", "internal/cli/mesh"},
	"golang.org/x/term":                           {"internal/cli"},
	"github.com/zalando/go-keyring":               {"auth/login"},
	"golang.org/x/crypto":                         {"trust/mint", "auth/login"},
	"github.com/zitadel/oidc/v3":                  {"internal/idptest"},
	"github.com/go-jose/go-jose/v4":               {"internal/idptest", "auth/oidc", "internal/bench"},
	"github.com/goccy/go-yaml":                    {"supervisor"},
	"golang.org/x/sys":                            {"internal/cli", "secret/filestore", "internal/config", "broker", "supervisor/seat"},
	"github.com/modelcontextprotocol/go-sdk":      {"mcpserver", "internal/cli"},
	"github.com/creack/pty":                       {"supervisor/seat", "internal/bench"},
	"github.com/clipperhouse/displaywidth":        {"internal/term"},
}

func TestExternalImports(t *testing.T) {
	for _, p := range packages(t) {
		for _, imp := range p.Imports {
			first, _, _ := strings.Cut(imp, "/")
			if relative(imp) != "" || !strings.Contains(first, ".") {
				continue
			}
			mod := ""
			for m := range importers {
				if within(imp, m) && len(m) > len(mod) {
					mod = m
				}
			}
			allowed := importers[mod]
			if !within(p.Path, allowed...) {
				t.Errorf("%s imports %s: only %v may import that module (ADR 0002)", p.Path, imp, allowed)
			}
		}
	}
}

// TestDependenciesHaveAnADR compares the direct dependencies with the tables of ADR 0002 and of the records that
// supersede or extend it: a row `| `+"`module`"+` | … |`.
func TestDependenciesHaveAnADR(t *testing.T) {
	top := root(t)
	rows := map[string]bool{}
	adrs, err := filepath.Glob(filepath.Join(top, "docs", "adr", "*.md"))
	if err != nil || len(adrs) == 0 {
		t.Fatalf("no decision records: %v", err)
	}
	for _, f := range adrs {
		for line := range strings.Lines(read(t, f)) {
			if rest, ok := strings.CutPrefix(line, "| `"); ok {
				name, _, _ := strings.Cut(rest, "`")
				rows[name] = true
			}
		}
	}
	for _, mod := range directModules(t) {
		if !rows[mod] {
			t.Errorf("direct dependency %s has no row in docs/adr", mod)
		}
	}
}

// directModules are the modules that a package or test of this module imports, or a tool line names.
func directModules(t *testing.T) []string {
	t.Helper()
	var required, tools []string
	for line := range strings.Lines(read(t, filepath.Join(root(t), "go.mod"))) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && fields[0] == "tool":
			tools = append(tools, fields[1])
		case len(fields) >= 2 && strings.HasPrefix(fields[1], "v"):
			required = append(required, fields[0])
		}
	}
	var imports []string
	for _, p := range packages(t) {
		imports = slices.Concat(imports, p.Imports, p.TestImports, p.XTestImports)
	}
	var direct []string
	for _, mod := range required {
		used := func(path string) bool { return within(path, mod) }
		if slices.ContainsFunc(imports, used) || slices.ContainsFunc(tools, used) {
			direct = append(direct, mod)
		}
	}
	return direct
}

func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
