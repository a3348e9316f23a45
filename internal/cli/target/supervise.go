package target

import (
	"encoding/hex"
	"os"
	"path/filepath"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/supervisor/persona"
	"github.com/cotal-go/cotal/wire"
)

// AgentsDir is where the agents of a space are kept below the folder of a project.
func AgentsDir(p *config.Project, space string) string {
	return filepath.Join(AllAgentsDir(p), hex.EncodeToString([]byte(space)))
}

// AllAgentsDir is where the agents of all spaces are kept.
func AllAgentsDir(p *config.Project) string { return filepath.Join(p.Dir, "run", "agents") }

// PersonasDir is where the agent files of a project are.
func PersonasDir(p *config.Project) string { return filepath.Join(p.Dir, "agents") }

// SupervisorOptions runs the agents of a project with this program. Dir is the folder of their state, empty for that of the project;
// ca is what they check the broker by, empty for the roots of the system.
//
// Errors: internal when the system does not tell where this program is.
func SupervisorOptions(p *config.Project, dir, ca string) (cotal.SupervisorOptions, error) {
	self, err := os.Executable()
	if err != nil {
		return cotal.SupervisorOptions{}, wire.Errorf(wire.CodeInternal, "find this program: %v", err)
	}
	return cotal.SupervisorOptions{
		CAFile: ca,
		Dir: func(space string) string {
			if dir != "" {
				return filepath.Join(dir, hex.EncodeToString([]byte(space)))
			}
			return AgentsDir(p, space)
		},
		Keeper: supervisor.Options{
			Program: self, Seats: supervisor.RealSeats{Program: self, Args: []string{"seat"}}, Personas: persona.Open(PersonasDir(p)),
			Project: p.Root, Environ: os.Environ(),
		},
	}, nil
}
