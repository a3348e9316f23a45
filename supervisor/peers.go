package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cotal-go/cotal/internal/atomicfile"
	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

const (
	// peerEvery is how often a keeper says that it is there.
	peerEvery = 2 * time.Second
	// peerForgotten is how long one is known that did not say goodbye and kept no agents. Until then "not found" is not said without it.
	peerForgotten = time.Hour
	// maxPeers bounds those that are known.
	maxPeers = 256
)

// heardPeer takes what another keeper said of itself, and reports whether it is news.
func (k *Keeper) heardPeer(p wire.ManagerPeer, now time.Time) (fresh bool) {
	if p.Instance == k.instance {
		return false
	}
	k.mu.Lock()
	old, known := k.peers[p.Instance]
	full := !known && len(k.peers) >= maxPeers
	if !full {
		p.Heard = now.UnixMilli()
		k.peers[p.Instance] = p
	}
	k.mu.Unlock()
	if full {
		return false
	}
	if !known || old.Left != p.Left || (old.Agents > 0) != (p.Agents > 0) {
		k.savePeers()
	}
	return (!known || old.Left) && !p.Left
}

// peersFile keeps who else there is: a keeper that begins again, perhaps before the others are back at the broker, must not say of what
// they have that it does not exist.
const peersFile = "peers.json"

// maxPeersFile bounds it in bytes.
const maxPeersFile = 1 << 20

// savePeers keeps those that are known. Nothing but another one waits for the disk, and that one keeps what is known by then.
func (k *Keeper) savePeers() {
	k.saving.Lock()
	defer k.saving.Unlock()
	k.mu.Lock()
	data, err := json.Marshal(k.peers)
	k.mu.Unlock()
	if err == nil {
		err = atomicfile.Write(filepath.Join(k.opts.Dir, peersFile), append(data, '\n'), 0o600)
	}
	if err != nil {
		k.log.Warn("other supervisors not kept", logkey.Error, fserr.Cause(err))
	}
}

// keepPeers writes down when the others were heard last.
func (k *Keeper) keepPeers() {
	k.mu.Lock()
	none := len(k.peers) == 0
	k.mu.Unlock()
	if !none {
		k.savePeers()
	}
}

// loadPeers takes those that were known when the keeper before kept them last. One that is silent since is forgotten as usual.
func (k *Keeper) loadPeers() {
	data, err := os.ReadFile(filepath.Join(k.opts.Dir, peersFile))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	known := map[string]wire.ManagerPeer{}
	if err == nil {
		err = wire.Decode(data, &known, maxPeersFile)
	}
	if err != nil {
		k.log.Warn("other supervisors of before not read", logkey.Error, fserr.Cause(err))
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, p := range known {
		if _, heard := k.peers[name]; !heard {
			k.peers[name] = p
		}
	}
}

// otherPeers are the keepers besides this one that have or may have agents: those that did not say goodbye, and those that did while
// they kept some, which go on without them.
func (k *Keeper) otherPeers() []wire.ManagerPeer {
	forgotten := time.Now().Add(-peerForgotten).UnixMilli()
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.peers, func(_ string, p wire.ManagerPeer) bool { return p.Heard < forgotten && p.Agents == 0 })
	var out []wire.ManagerPeer
	for _, p := range k.peers {
		if !p.Gone() {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b wire.ManagerPeer) int { return strings.Compare(a.Instance, b.Instance) })
	return out
}

// away says that a keeper is not there, by its own word or because it is long silent, and that agents of it may go on.
func away(p wire.ManagerPeer, now time.Time) bool {
	return p.Agents > 0 && (p.Left || p.Heard < now.Add(-peerForgotten).UnixMilli())
}

// releasePeers forgets the keepers that are away and of whose agents none holds a grant any more, such as those of a host that is gone
// for good after somebody revoked them. While the authority does not say what stands, they are known.
func (k *Keeper) releasePeers(ctx context.Context) {
	all := func() []string {
		k.mu.Lock()
		defer k.mu.Unlock()
		var out []string
		for name, p := range k.peers {
			if away(p, time.Now()) {
				out = append(out, name)
			}
		}
		return out
	}
	if len(all()) == 0 {
		return
	}
	grants, err := k.standingGrants(ctx, 0)
	if err != nil {
		k.log.DebugContext(ctx, "other supervisors not compared with what stands", logkey.Error, err)
		return
	}
	holds := map[string]bool{}
	for _, g := range grants {
		maker, _, _ := strings.Cut(g.Label, ":")
		holds[maker] = true
	}
	released := slices.DeleteFunc(all(), func(name string) bool { return holds[name] })
	if len(released) == 0 {
		return
	}
	k.mu.Lock()
	for _, name := range released {
		if away(k.peers[name], time.Now()) {
			delete(k.peers, name)
		}
	}
	k.mu.Unlock()
	k.log.InfoContext(ctx, "supervisors forgotten that are away and whose agents hold nothing", logkey.Count, len(released))
	k.savePeers()
}

// releaseWithin bounds what an answer waits for releasePeers.
const releaseWithin = time.Second

// self is what the keeper says of itself. Agents whose folders it cannot read may run, and count.
func (k *Keeper) self() wire.ManagerPeer {
	n := len(k.where(func(r *record) bool { return !r.State.over() })) + len(k.Unreadable())
	return wire.ManagerPeer{Instance: k.instance, Host: k.opts.Host, Agents: n, Heard: time.Now().UnixMilli()}
}
