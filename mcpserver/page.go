package mcpserver

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cotal-go/cotal/wire"
)

// Sizes of pages, in characters.
const (
	// PageChars bounds what one call of cotal_inbox returns.
	PageChars = 48_000
	// hookChars bounds what a hook is given: hosts cut what is longer.
	hookChars = 9_000
	// pageFrame is kept for what stands around the messages of a page.
	pageFrame = 2_500
	// leastPart is the least of an oversize message that is worth a place at the end of a page.
	leastPart = 2_000
	// maxPages is how many pages can be acknowledged. Older ones are shown again instead.
	maxPages = 32
)

// entry is what a page showed of one message: the characters from from to to of its body.
type entry struct {
	it       *item
	from, to int
	last     bool
}

// page is what was shown and not acknowledged yet.
type page struct {
	id      string
	entries []entry
}

// pages are those that can still be acknowledged. Their ids are of this process: what an earlier one showed was not acknowledged
// and is shown again.
type pages struct {
	nonce string

	mu   sync.Mutex // guards the fields below
	last int
	open []page // oldest first
}

func newPages() *pages { return &pages{nonce: strings.ToLower(rand.Text()[:6])} }

func (p *pages) add(entries []entry) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	id := "p" + p.nonce + "-" + strconv.Itoa(p.last)
	p.keep(page{id, entries})
	return id
}

// take returns the page with an id, which cannot be taken again.
func (p *pages) take(id string) (page, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken, i := p.find(id)
	if i < 0 {
		return page{}, false
	}
	p.open = slices.Delete(p.open, i, i+1)
	return taken, true
}

// look returns the page with an id.
func (p *pages) look(id string) (page, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, i := p.find(id)
	return found, i >= 0
}

// find returns the page with an id and its place, negative for none. mu is held.
func (p *pages) find(id string) (page, int) {
	i := slices.IndexFunc(p.open, func(o page) bool { return o.id == id })
	if i < 0 {
		return page{}, i
	}
	return p.open[i], i
}

// put makes a page that was taken acknowledgeable again.
func (p *pages) put(taken page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keep(taken)
}

// keep adds a page, and drops the oldest of those that are too many. mu is held.
func (p *pages) keep(added page) {
	if n := len(p.open) + 1 - maxPages; n > 0 {
		p.open = slices.Delete(p.open, 0, n)
	}
	p.open = append(p.open, added)
}

// acknowledge settles what a page showed: messages of which it showed the end, and the place up to which others were read.
//
// Errors: not-found for a page that this process did not show, or that is too old: nothing was acknowledged; those of
// Delivery.Ack, and then the messages concerned are shown again.
func (s *Server) acknowledge(ctx context.Context, id string) (int, error) {
	p, ok := s.pages.take(id)
	if !ok {
		return 0, wire.Errorf(wire.CodeNotFound, "acknowledge page %q: this process has no such page to acknowledge; nothing was acknowledged, and what is unread is shown again", id)
	}
	var whole []*item
	s.inbox.mu.Lock()
	for _, e := range p.entries {
		switch {
		case e.from > e.it.done: // a part before it was not acknowledged
		case e.last:
			whole = append(whole, e.it)
		default:
			e.it.done, e.it.showed = max(e.it.done, e.to), false
		}
	}
	s.inbox.mu.Unlock()
	n, err := s.inbox.ack(ctx, whole)
	if err != nil {
		s.pages.put(p)
		err = fmt.Errorf("acknowledge page %q: what is unread is shown again: %w", id, err)
	}
	s.quiet()
	return n, err
}

// shown is a page as it is shown.
type shown struct {
	id     string // empty when there is nothing to acknowledge
	text   string
	count  int
	left   int // messages here that did not fit
	wanted func(*item) bool
}

// compose makes a page of at most limit characters of the messages that wanted picks, and remembers what it shows.
func (s *Server) compose(ctx context.Context, limit int, wanted func(*item) bool) shown {
	know := s.people(ctx)
	room := limit - pageFrame
	var b strings.Builder
	var entries []entry
	out := shown{wanted: wanted}
	full := false
	s.inbox.each(func(it *item) bool {
		if !wanted(it) {
			return true
		}
		if full {
			out.left++
			return true
		}
		text, e, ok := s.fit(it, know, room, len(entries) == 0)
		if !ok {
			full = true
			out.left++
			return true
		}
		room -= chars(text)
		b.WriteString(text)
		entries = append(entries, e)
		full = !e.last
		return true
	})
	out.count = len(entries)
	if out.count > 0 {
		out.id = s.pages.add(entries)
		out.text = fmt.Sprintf(preamble, s.ep.Space()) + b.String()
	}
	return out
}

// fit is what a page shows of a message within room characters, and false when it is for the next page.
func (s *Server) fit(it *item, know func(wire.Principal) who, room int, first bool) (string, entry, bool) {
	s.inbox.mu.Lock()
	d, from, showed := it.d, it.done, it.showed
	s.inbox.mu.Unlock()
	head := "\n" + s.header(d, know(d.Sender))
	if showed && !d.Redelivered {
		head += handedOut
	}
	text := body(d.Message)
	total := chars(text)
	if n := chars(head) + total - from + 64; n <= room { // 64 for what says which part it is
		if from > 0 {
			head += fmt.Sprintf(", last part, from character %d of %d", from+1, total)
			text = part(text, from, total)
		}
		return head + ":\n" + text, entry{it, from, total, true}, true
	}
	space := room - chars(head) - 64
	if !first && (space < leastPart || total-from <= PageChars-pageFrame-chars(head)-64) || space < 1 {
		return "", entry{}, false // it fits a page of its own
	}
	to := from + space
	head += fmt.Sprintf(", part: characters %d to %d of %d, the next page goes on", from+1, to, total)
	return head + ":\n" + part(text, from, to), entry{it, from, to, false}, true
}
