package connector

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/cotal-go/cotal/wire"
)

// gemini is Gemini CLI. It takes tools, hooks and a persona from the folder of the user's settings alone, below GEMINI_CLI_HOME: the
// agent has one of its own, with the user's settings and what is the agent's in one file, and links to the rest.
type gemini struct{}

var _ Connector = gemini{}

func (gemini) Name() string { return "gemini" }

func (gemini) Info() Info {
	return Info{
		Name: "gemini", Title: "Gemini CLI", Program: "gemini",
		Install: "npm install -g @google/gemini-cli", Tried: "0.61.0",
		Model:   true,
		Persona: true, Prompt: true, Tools: true, Hooks: true, Resumes: true,
		Home:      "a GEMINI_CLI_HOME of the agent's own: the user's settings.json and GEMINI.md with the agent's, links to the login and the rest",
		Approvals: "the host's own rules; the tools of the space are allowed, in a folder that the user trusts",
	}
}

// geminiEvents are the host's events, with what they are to the agent's tools.
var geminiEvents = []hostEvent{
	{host: "SessionStart", ours: "session-start"},
	{host: "BeforeAgent", ours: "prompt"},
	{host: "BeforeTool", ours: "tool", matcher: ".*"},
	{host: "Notification", ours: "notification"},
	{host: "AfterAgent", ours: "stop"},
	{host: "SessionEnd", ours: "end"},
}

// geminiShared is what the agent's folder leads to in the user's.
var geminiShared = []string{
	"oauth_creds.json", "google_accounts.json", "gemini-credentials.json", "mcp-oauth-tokens.json", "installation_id", ".env",
	"commands", "extensions", "policies", "skills",
}

// Prepare makes the agent's folder of settings.
func (g gemini) Prepare(_ context.Context, r Request) (Launch, error) {
	info := g.Info()
	program, l, err := r.begin(info)
	if err != nil {
		return Launch{}, err
	}
	user := r.getenv("GEMINI_CLI_HOME")
	if user == "" {
		user = r.home()
	}
	user = filepath.Join(user, ".gemini")
	l.Files, err = r.geminiFiles(user)
	if err != nil {
		return Launch{}, err
	}
	l.Argv = []string{program}
	if r.Model != "" {
		l.Argv = append(l.Argv, "--model="+r.Model)
	}
	if ran(r.Dir, info.Name, ".gemini", "tmp", "*", "chats", "session-*") {
		l.Argv = append(l.Argv, "--resume=latest") // the folder has no other agent's
	} else if r.Prompt != "" {
		l.Argv = append(l.Argv, "--prompt-interactive="+r.Prompt)
	}
	trusted := r.getenv("GEMINI_CLI_TRUSTED_FOLDERS_PATH")
	if trusted == "" {
		trusted = filepath.Join(user, "trustedFolders.json")
	}
	l.Env = merged(l.Env, map[string]string{
		"GEMINI_CLI_HOME":                 filepath.Join(r.Dir, info.Name),
		"GEMINI_CLI_TRUSTED_FOLDERS_PATH": trusted,
	})
	l.PassEnv = []string{
		"GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL", "GOOGLE_GENAI_USE_VERTEXAI",
		"GOOGLE_GENAI_USE_GCA", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "GOOGLE_APPLICATION_CREDENTIALS",
	}
	return l, nil
}

// geminiFiles returns what is in the agent's folder, from the user's.
func (r Request) geminiFiles(user string) ([]File, error) {
	at := func(name string) string { return filepath.Join("gemini", ".gemini", name) }
	settings, err := r.geminiSettings(filepath.Join(user, "settings.json"))
	if err != nil {
		return nil, err
	}
	files := []File{r.file(at("settings.json"), settings)}
	if r.PersonaText != "" {
		text := r.PersonaText
		if own, err := os.ReadFile(filepath.Join(user, "GEMINI.md")); err == nil {
			text = string(own) + "\n\n" + text
		}
		files = append(files, r.file(at("GEMINI.md"), []byte(text)))
	} else {
		files = r.share(files, at(""), user, []string{"GEMINI.md"})
	}
	return r.share(files, at(""), user, geminiShared), nil
}

// geminiSettings returns the user's settings with the agent's tools and hooks.
func (r Request) geminiSettings(path string) ([]byte, error) {
	settings := object{}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(withoutComments(data), &settings)
	} else if os.IsNotExist(err) {
		err = nil
	}
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "start Gemini CLI: read its settings %q: %v: repair them", path, err)
	}
	if settings == nil { // the file says null
		settings = object{}
	}
	servers := within(settings, "mcpServers")
	servers["cotal"] = object{"command": r.Program, "args": []string{"mcp"}, "env": r.env(), "trust": true}
	hooks := within(settings, "hooks")
	for event, ours := range r.commandHooks("gemini", geminiEvents, hookSeconds*1000) {
		own, _ := hooks[event].([]any)
		for _, group := range ours.([]object) {
			own = append(own, group)
		}
		hooks[event] = own
	}
	within(settings, "general")["enableAutoUpdate"] = false // many agents share one installation
	return encode(settings), nil
}

// within returns the object of a key, made where there is none.
func within(o object, key string) object {
	inner, ok := o[key].(object)
	if !ok {
		inner = object{}
		o[key] = inner
	}
	return inner
}
