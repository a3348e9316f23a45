package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/gofrs/flock"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/wire"
)

// Names inside a store directory.
const (
	lockName     = "lock"
	markerName   = "broker.json"
	accountsName = "accounts"
	streamsName  = "jetstream"
	claimSuffix  = ".jwt"
	tempSuffix   = ".tmp"
)

// openOwner marks the store of an open broker, which has no operator.
const openOwner = "open"

// marker says whose a store directory is.
type marker struct {
	Version int    `json:"v"`
	Owner   string `json:"owner"` // public key of the operator, or openOwner
}

// storeDir is a store directory that this process holds the lock of.
type storeDir struct {
	path string
	lock *flock.Flock
}

// claimStore creates or opens the store directory and locks it for owner. mine says whether an account claim found
// in it was signed under the same trust; it decides about directories written by an external broker.
func claimStore(path, owner string, mine func(public, token string) bool) (*storeDir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fileError("create store directory", path, err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fileError("read store directory", path, err)
	}
	if !marked(entries) {
		if err := checkUnmarked(path, entries, mine); err != nil {
			return nil, err
		}
	}
	d := &storeDir{path: path, lock: flock.New(filepath.Join(path, lockName), flock.SetPermissions(0o600))}
	if err := d.acquire(); err != nil {
		return nil, err
	}
	d.sweep()
	if err := d.mark(owner); err != nil {
		d.release()
		return nil, err
	}
	return d, nil
}

// leftover reports whether a file was written by a broker that ended between write and rename.
func leftover(e fs.DirEntry, base string) bool {
	return e.Type().IsRegular() && strings.HasPrefix(e.Name(), base) && strings.HasSuffix(e.Name(), tempSuffix)
}

// sweep removes what brokers that were killed left half-written. The lock is held, so nobody is writing. What cannot be
// removed or read stands in nobody's way.
func (d *storeDir) sweep() {
	for dir, base := range map[string]string{d.path: markerName + "-", d.accounts(): ""} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if leftover(e, base) {
				_ = os.Remove(filepath.Join(dir, e.Name()))
			}
		}
	}
}

func marked(entries []fs.DirEntry) bool {
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == markerName })
}

// checkUnmarked refuses a directory with contents that no broker of this trust wrote.
func checkUnmarked(path string, entries []fs.DirEntry, mine func(public, token string) bool) error {
	data := false
	for _, e := range entries {
		switch name := e.Name(); {
		case name == lockName, name == accountsName, leftover(e, markerName+"-"):
		case name == streamsName:
			data = true
		default:
			return wire.Errorf(wire.CodeFailedPrecondition,
				"store directory %q holds %q and was not written by a broker: choose an empty directory", path, name)
		}
	}
	claims, err := readClaims(filepath.Join(path, accountsName))
	if err != nil {
		return err
	}
	known := len(claims) > 0
	for public, token := range claims {
		known = known && mine(public, token)
	}
	if (data || len(claims) > 0) && !known {
		return foreign(path, "an unknown operator")
	}
	return nil
}

func foreign(path, owner string) error {
	return wire.Errorf(wire.CodeFailedPrecondition,
		"store directory %q belongs to a broker of %s: choose another directory, or the trust records it was made with", path, owner)
}

// acquire takes the lock, without waiting.
func (d *storeDir) acquire() error {
	ok, err := d.lock.TryLock()
	if err != nil {
		return fileError("lock store directory", d.path, err)
	}
	file := filepath.Join(d.path, lockName)
	if !ok {
		who := "another broker"
		if pid, err := os.ReadFile(file); err == nil && len(pid) > 0 && len(pid) < 20 {
			who = "the broker in process " + string(bytes.TrimSpace(pid))
		}
		return wire.Errorf(wire.CodeConflict, "store directory %q is in use by %s", d.path, who)
	}
	// Only for the sentence above; on systems that lock against writing it stays empty.
	_ = os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())), 0o600)
	return nil
}

// mark writes or compares the owner. The lock is held.
func (d *storeDir) mark(owner string) error {
	file := filepath.Join(d.path, markerName)
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		data, err := json.Marshal(marker{Version: 1, Owner: owner})
		if err != nil {
			return wire.Errorf(wire.CodeInternal, "encode owner of store directory %q: %v", d.path, err)
		}
		return writeAtomic(file, append(data, '\n'))
	}
	if err != nil {
		return fileError("read owner of store directory", d.path, err)
	}
	var m marker
	if err := json.Unmarshal(data, &m); err != nil || m.Version != 1 || m.Owner == "" {
		return wire.Errorf(wire.CodeFailedPrecondition, "store directory %q has an unreadable %q", d.path, markerName)
	}
	if m.Owner == owner {
		return nil
	}
	if m.Owner == openOwner {
		return foreign(d.path, "an open mesh")
	}
	return foreign(d.path, "operator "+strconv.Quote(m.Owner))
}

// release gives the lock back.
func (d *storeDir) release() { _ = d.lock.Unlock() }

func (d *storeDir) accounts() string { return filepath.Join(d.path, accountsName) }
func (d *storeDir) streams() string  { return filepath.Join(d.path, streamsName) }

// sync makes the account directory hold exactly want, whatever is newer: the records are the truth. It returns the
// accounts whose claims it removed; their streams stay on disk.
func (d *storeDir) sync(want map[string]string) (removed []string, err error) {
	dir := d.accounts()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fileError("create account directory", dir, err)
	}
	have, err := readClaims(dir)
	if err != nil {
		return nil, err
	}
	for public := range have {
		if _, ok := want[public]; ok {
			continue
		}
		file := filepath.Join(dir, public+claimSuffix)
		if err := os.Remove(file); err != nil {
			return removed, fileError("remove account claim", file, err)
		}
		removed = append(removed, public)
	}
	for public, token := range want {
		if have[public] == token {
			continue
		}
		if err := writeAtomic(filepath.Join(dir, public+claimSuffix), []byte(token)); err != nil {
			return removed, err
		}
	}
	slices.Sort(removed)
	return removed, nil
}

// readClaims reads every account claim of dir. An absent directory holds none.
func readClaims(dir string) (map[string]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fileError("read account directory", dir, err)
	}
	claims := map[string]string{}
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		public, ok := strings.CutSuffix(e.Name(), claimSuffix)
		if !ok {
			continue
		}
		token, err := os.ReadFile(file)
		if err != nil {
			return nil, fileError("read account claim", file, err)
		}
		claims[public] = string(token)
	}
	return claims, nil
}

// orphans are the accounts that have streams on disk but no claim.
func (d *storeDir) orphans() ([]string, error) {
	entries, err := os.ReadDir(d.streams())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fileError("read stream directory", d.streams(), err)
	}
	var found []string
	for _, e := range entries {
		if nkeys.IsValidPublicAccountKey(e.Name()) && !d.claimed(e.Name()) {
			found = append(found, e.Name())
		}
	}
	return found, nil
}

// claimed reports whether the broker may still serve account public. Not being able to tell counts as yes.
func (d *storeDir) claimed(public string) bool {
	_, err := os.Stat(filepath.Join(d.accounts(), public+claimSuffix))
	return !errors.Is(err, fs.ErrNotExist)
}

// prune deletes the streams of an account that has no claim any more.
func (d *storeDir) prune(public string) error {
	if !nkeys.IsValidPublicAccountKey(public) {
		return wire.Errorf(wire.CodeBadRequest, "prune account: %q is not the public key of an account", public)
	}
	if d.claimed(public) {
		return wire.Errorf(wire.CodeFailedPrecondition, "prune account %q: the broker still knows it, so remove it first", public)
	}
	dir := filepath.Join(d.streams(), public)
	if err := os.RemoveAll(dir); err != nil {
		return fileError("remove streams of account", dir, err)
	}
	return nil
}

// writeAtomic replaces file by data, readable to the owner only, so that a crash leaves the old or the new contents.
func writeAtomic(file string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+"-*"+tempSuffix)
	if err != nil {
		return fileError("write", file, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fileError("write", file, err)
	}
	return syncDir(filepath.Dir(file))
}

// syncDir makes a rename durable. Windows has no such call and needs none.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return fileError("sync directory", dir, err)
	}
	err = errors.Join(f.Sync(), f.Close())
	if err != nil {
		return fileError("sync directory", dir, err)
	}
	return nil
}
