//go:build linux || darwin

package hosts_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// key is the user's key of every provider. Claude Code asks once whether a key may be used, and keeps the end of it.
const key, keyEnd = "sk-ant-user-0123456789abcdef0123", "0123456789abcdef0123"

// user is somebody who has used a host before: logged in, chosen a theme, and trusted the working folder.
type user struct {
	files map[string]string // by path below the home: what the user has set, which no agent may change
	state map[string]string // the same, but the host itself writes it
	env   map[string]string // of the supervisor; the agent gets what its connector passes on
	set   map[string]string // what the agent file sets
	model string
}

func userOf(t *testing.T, host, cwd, url string) user {
	t.Helper()
	encode := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	type object = map[string]any
	switch host {
	case "claude":
		return user{
			files: map[string]string{".claude/settings.json": encode(object{"spinnerTipsEnabled": false})},
			state: map[string]string{".claude.json": encode(object{
				"hasCompletedOnboarding": true, "theme": "dark", "numStartups": 3,
				"customApiKeyResponses": object{"approved": []string{keyEnd}, "rejected": []string{}},
				"projects":              object{cwd: object{"hasTrustDialogAccepted": true}},
			})},
			env:   map[string]string{"ANTHROPIC_API_KEY": key, "ANTHROPIC_BASE_URL": url},
			set:   map[string]string{"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
			model: "claude-test-1",
		}
	case "codex":
		return user{
			files: map[string]string{".codex/config.toml": fmt.Sprintf("model_provider = \"here\"\n[model_providers.here]\nname = \"here\"\n"+
				"base_url = %q\nenv_key = \"OPENAI_API_KEY\"\nwire_api = \"responses\"\n[analytics]\nenabled = false\n[projects.%q]\ntrust_level = \"trusted\"\n",
				url+"/v1", cwd)},
			env:   map[string]string{"OPENAI_API_KEY": key},
			model: "codex-test-1",
		}
	case "gemini":
		return user{
			files: map[string]string{
				".gemini/settings.json": "// mine\n" + encode(object{
					"security": object{"auth": object{"selectedType": "gemini-api-key"}}, "ui": object{"theme": "Default"},
					"privacy": object{"usageStatisticsEnabled": false}, "tools": object{"allowed": []string{"run_shell_command"}},
				}),
				".gemini/trustedFolders.json": encode(map[string]string{cwd: "TRUST_FOLDER"}),
			},
			env:   map[string]string{"GEMINI_API_KEY": key, "GOOGLE_GEMINI_BASE_URL": url},
			model: "gemini-test-1",
		}
	case "opencode":
		return user{
			files: map[string]string{".opencode.json": encode(object{"$schema": "https://opencode.ai/config.json", "provider": object{"here": object{
				"npm": "@ai-sdk/openai-compatible", "name": "here", "options": object{"baseURL": url + "/v1", "apiKey": "{env:OPENAI_API_KEY}"},
				"models": object{"test-1": object{"name": "test-1"}},
			}}})},
			env:   map[string]string{"OPENAI_API_KEY": key, "OPENCODE_CONFIG": "HOME/.opencode.json"},
			set:   map[string]string{"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"},
			model: "here/test-1",
		}
	}
	t.Fatalf("nothing is known of host %q", host)
	return user{}
}

// settle writes the user's files below a home.
func (u user) settle(t *testing.T, home string) {
	t.Helper()
	all := maps.Clone(u.files)
	maps.Copy(all, u.state)
	for rel, text := range all {
		path := filepath.Join(home, filepath.FromSlash(rel))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// unchanged asserts that what the user has set is as it was.
func (u user) unchanged(t *testing.T, home string) {
	t.Helper()
	for rel, want := range u.files {
		if got, err := os.ReadFile(filepath.Join(home, filepath.FromSlash(rel))); err != nil || string(got) != want {
			t.Errorf("the user's %s is %q (%v), was %q", rel, got, err, want)
		}
	}
}
