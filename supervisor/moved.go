package supervisor

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/cotal-go/cotal/internal/launch"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/internal/pause"
	"github.com/cotal-go/cotal/wire"
)

// moveEvery is how often a keeper looks where the broker is.
const moveEvery = time.Second

// follow writes into the launch files of the agents where the broker is, until ctx ends. It may come back at another address than the one
// that an agent was started with, and its launch file is where the agent looks.
func (k *Keeper) follow(ctx context.Context) {
	var told, tried Server
	for {
		now := k.opts.Server()
		if now != told && k.tell(ctx, now, now != tried) {
			told = now
		}
		tried = now
		if pause.For(ctx, moveEvery) != nil {
			return
		}
	}
}

// tell reports whether every agent can know where the broker is.
func (k *Keeper) tell(ctx context.Context, now Server, loud bool) bool {
	all := true
	for _, a := range k.where(func(r *record) bool { return !r.settled() }) {
		if err := a.move(now); err != nil {
			all = false
			if loud {
				k.log.WarnContext(ctx, "agent not told where the broker is; tried again", logkey.UID, string(a.uid), logkey.Server, now.URL, logkey.Error, err)
			}
		}
	}
	return all
}

// move writes the launch file again when it names another broker.
func (a *agent) move(now Server) error {
	path := filepath.Join(a.dir, launchFile)
	a.launching.Lock()
	defer a.launching.Unlock()
	f, err := launch.Read(path)
	if errors.Is(err, wire.ErrNotFound) {
		return nil // the start writes it
	}
	if err != nil || (Server{f.Server, f.TLS, f.CAFile, f.TLSName, now.CapabilityFile}) == now {
		return err
	}
	lead(&f, now)
	return launch.Write(path, f)
}

// lead makes a launch file lead to a broker.
func lead(f *launch.File, to Server) {
	f.Server, f.TLS, f.CAFile, f.TLSName = to.URL, to.TLS, to.CAFile, to.TLSName
	if f.Exchange != nil {
		f.Exchange.CapabilityFile = to.CapabilityFile
	}
}

// writeLaunch writes the launch file of a start. Where the broker is, it asks for while nobody else writes: an address of before must not be
// written over a later one.
func (a *agent) writeLaunch(f launch.File) error {
	a.launching.Lock()
	defer a.launching.Unlock()
	lead(&f, a.k.opts.Server())
	return launch.Write(filepath.Join(a.dir, launchFile), f)
}
