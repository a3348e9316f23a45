package cli_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cotal-go/cotal/internal/cli/process"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/internal/idptest"
	"github.com/cotal-go/cotal/supervisor/seat"
)

// TestScripts runs every script below testdata/script, wherever it lies.
func TestScripts(t *testing.T) {
	dirs := map[string]bool{}
	err := filepath.WalkDir(filepath.Join("testdata", "script"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".txtar") {
			dirs[filepath.Dir(path)] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(dirs) == 0 {
		t.Fatal("no scripts found")
	}
	for dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			testscript.Run(t, testscript.Params{
				Dir: dir, Setup: setup, RequireExplicitExec: true, RequireUniqueNames: true,
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"start": cmdStart, "expect": cmdExpect, "type": cmdType, "end": cmdEnd, "portof": cmdPortOf,
					"exit": cmdExit, "listen": cmdListen, "certificate": cmdCertificate, "kill9": cmdKill, "killkeeper": cmdKillKeeper, "crash": cmdCrash, "setrun": cmdSetRun, "lastport": cmdLastPort,
					"mode": cmdMode, "absent": cmdAbsent, "pause": cmdPause, "resume": cmdResume, "killjob": cmdKillJob, "refuse": cmdRefuse, "park": cmdPark, "await": cmdAwait, "zeros": cmdZeros,
					"idp": cmdIDP(t), "approve": cmdApprove, "ownerof": cmdOwnerOf, "freeport": cmdFreePort, "front": cmdFront, "secretless": cmdSecretless,
					"agent": cmdAgent, "alive": cmdAlive, "gone": cmdGone, "same": cmdSame, "keeperof": cmdKeeperOf,
				},
			})
		})
	}
}

// setup gives a script a machine of its own, and takes every mesh down that the script left up.
func setup(env *testscript.Env) error {
	home := filepath.Join(env.WorkDir, "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	env.Setenv("HOME", home)
	env.Setenv("USERPROFILE", home)
	env.Setenv("LOCALAPPDATA", home)
	env.Setenv("COTAL_HOME", filepath.Join(home, ".cotal"))
	env.Setenv("COTAL_NAME", "ada")
	env.Setenv("NO_COLOR", "1")
	env.Setenv("GORACE", "atexit_sleep_ms=10") // a program built with the race detector otherwise ends a second late
	env.Setenv("COTAL_SESSIONS", "file")       // and not in the keyring of whoever runs the tests
	env.Values[jobsKey{}] = &jobs{byName: map[string]*job{}}
	env.Values[scriptKey{}] = env.T()
	env.Values[idpsKey{}] = map[string]*idptest.IdP{}
	env.Defer(func() { endMeshes(env.T(), env.WorkDir) })
	return nil
}

// endMeshes ends what a script left running, so that a failing script does not leave processes behind.
func endMeshes(t testscript.T, dir string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != config.Folder || !d.IsDir() {
			return nil
		}
		project := config.NewProject(filepath.Dir(path))
		if keeper, kept := target.Keeper(project); kept {
			_ = keeper.Kill() // it may have ended
		}
		run, err := project.Run()
		if err == nil && run != nil {
			id := process.Identity{PID: run.PID, Start: run.Start}
			if err := id.Kill(); err == nil && t.Verbose() {
				t.Log("ended mesh left by the script: ", path)
			}
		}
		endSeats(t, path)
		return filepath.SkipDir
	})
}

// endSeats ends the agents that a script left running in a project's folder.
func endSeats(t testscript.T, dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "seat.json" {
			return nil
		}
		if c, err := seat.Open(ctx, filepath.Dir(path)); err == nil {
			if _, err := c.Stop(ctx, 0); err == nil && t.Verbose() {
				t.Log("ended agent left by the script: ", path)
			}
			_ = c.Release(ctx)
			_ = c.Close()
		}
		return nil
	})
}
