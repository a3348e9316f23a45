package connector

import (
	"context"
	_ "embed"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cotal-go/cotal/wire"
)

// opencode is OpenCode. It takes one more layer of settings from an environment variable, over the user's and the project's; its
// hooks are functions of a plugin, a file of JavaScript that is named there.
type opencode struct{}

var _ Connector = opencode{}

// opencodePlugin is the plugin. It finds cotal and the launch file in the agent's environment.
//
//go:embed opencode.mjs
var opencodePlugin []byte

// opencodeSession is the id of a conversation, which the plugin keeps in the agent's folder: all of the user's are in one place.
var opencodeSession = regexp.MustCompile(`^ses_[A-Za-z0-9]{1,64}$`)

func (opencode) Name() string { return "opencode" }

func (opencode) Info() Info {
	return Info{
		Name: "opencode", Title: "OpenCode", Program: "opencode",
		Install: "npm install -g opencode-ai", Tried: "1.18.33",
		Model:   true,
		Persona: true, Prompt: true, Tools: true, Hooks: true, Resumes: true,
		Home:      "the user's settings and login, under a layer of the agent's own",
		Approvals: "the host's own rules, which allow what no rule of the user's forbids",
	}
}

// Prepare writes the plugin and the persona and names them in the layer.
func (o opencode) Prepare(_ context.Context, r Request) (Launch, error) {
	info := o.Info()
	if r.Model != "" && !strings.Contains(strings.Trim(r.Model, "/"), "/") {
		return Launch{}, wire.Errorf(wire.CodeBadRequest, "start OpenCode: model %q has no provider: name it provider/model", r.Model)
	}
	program, l, err := r.begin(info)
	if err != nil {
		return Launch{}, err
	}
	plugin := r.file("opencode/cotal.mjs", opencodePlugin)
	l.Files = []File{plugin}
	layer := object{
		"mcp": object{"cotal": object{
			"type": "local", "command": []string{r.Program, "mcp"}, "environment": r.env(), "enabled": true,
		}},
		"plugin":     []string{(&url.URL{Scheme: "file", Path: filepath.ToSlash(plugin.Path)}).String()},
		"autoupdate": false,
	}
	if r.PersonaText != "" {
		persona := r.file("opencode/persona.md", []byte(r.PersonaText))
		l.Files = append(l.Files, persona)
		layer["instructions"] = []string{persona.Path}
	}
	l.Argv = []string{program}
	if r.Model != "" {
		l.Argv = append(l.Argv, "--model="+r.Model)
	}
	kept := filepath.Join(r.Dir, info.Name, "session")
	if id, err := os.ReadFile(kept); err == nil && opencodeSession.Match(id) {
		l.Argv = append(l.Argv, "--session="+string(id))
	} else if r.Prompt != "" {
		l.Argv = append(l.Argv, "--prompt="+r.Prompt)
	}
	l.Env = merged(l.Env, map[string]string{
		"OPENCODE_CONFIG_CONTENT":     string(encode(layer)),
		"OPENCODE_DISABLE_AUTOUPDATE": "1",
		"COTAL_HOOK_PROGRAM":          r.Program,
		"COTAL_HOOK_SESSION":          kept,
	})
	l.PassEnv = []string{
		"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENCODE_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY",
		"GOOGLE_GENERATIVE_AI_API_KEY", "GROQ_API_KEY", "MISTRAL_API_KEY", "DEEPSEEK_API_KEY", "XAI_API_KEY",
		"OPENCODE_CONFIG", "OPENCODE_CONFIG_DIR",
	}
	return l, nil
}
