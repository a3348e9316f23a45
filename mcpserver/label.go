package mcpserver

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"

	"github.com/cotal-go/cotal/wire"
)

const (
	// labelMark begins what stands for an id that is not shown. No id that is shown has it.
	labelMark = "~"
	// maxLabels is how many are remembered, the last that were shown.
	maxLabels = 1024
)

// labels are how lines of ours name messages whose id a peer chose: by the id when it is one word, else by a label, which stands for
// it in the arguments of tools. The same id has the same label in every process. The zero value remembers none.
type labels struct {
	mu    sync.Mutex // guards the fields below
	ids   map[string]string
	order []string // oldest first
}

// label is what stands for an id in a line of ours.
func label(id string) string {
	if isWord(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return labelMark + hex.EncodeToString(sum[:8])
}

// of is the label of an id, remembered for whoever names it.
func (l *labels) of(id string) string {
	short := label(id)
	if short == id {
		return id
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ids == nil {
		l.ids = map[string]string{}
	}
	if _, known := l.ids[short]; known {
		l.order = slices.DeleteFunc(l.order, func(o string) bool { return o == short })
	}
	if l.order = append(l.order, short); len(l.order) > maxLabels {
		delete(l.ids, l.order[0])
		l.order = slices.Delete(l.order, 0, 1)
	}
	l.ids[short] = id
	return short
}

// id is the id that an argument means. Its error is not-found, for a label that this process did not show.
func (l *labels) id(arg string) (string, error) {
	if !strings.HasPrefix(arg, labelMark) {
		return arg, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	id, known := l.ids[arg]
	if !known {
		return "", undone(wire.CodeNotFound, "find message %q: this process has shown none with that id; show it again with cotal_inbox or cotal_history", arg)
	}
	return id, nil
}
