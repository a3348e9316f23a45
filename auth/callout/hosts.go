package callout

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// suspectAt is how many bad tokens make an address suspect. One is forgotten every second.
	suspectAt = 16
	// worst bounds what is remembered of one address, so that it is trusted again a minute after it stopped.
	worst = 60
	// maxHosts bounds how many addresses are remembered.
	maxHosts = 4096
	// evictLook is how many entries are looked at to find one to forget.
	evictLook = 8
)

// hosts remembers the addresses that bad tokens come from. Being suspect refuses nobody: many people may share an address. It
// only makes the rest of what comes from there wait behind everybody else, and its refusals cheap.
type hosts struct {
	mu  sync.Mutex // guards all
	all map[string]*record
}

// record is how many bad tokens an address has to its account at a moment.
type record struct {
	bad  float64
	when time.Time
}

func newHosts() *hosts { return &hosts{all: map[string]*record{}} }

func (r *record) at(now time.Time) float64 { return max(0, r.bad-now.Sub(r.when).Seconds()) }

// suspect reports whether much of what came from the address of late was bad.
func (h *hosts) suspect(host string, now time.Time) bool {
	key := hostKey(host)
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.all[key]
	return r != nil && r.at(now) >= suspectAt
}

// blame counts a bad token.
func (h *hosts) blame(host string, now time.Time) {
	key := hostKey(host)
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.all[key]
	if r == nil {
		if len(h.all) >= maxHosts {
			h.forget(now)
		}
		r = &record{}
		h.all[key] = r
	}
	r.bad, r.when = min(r.at(now)+1, worst), now
}

// forget drops the best of a few entries. Whoever comes from thousands of addresses makes us forget; then the order of the
// checks still keeps what is bad away from the workers for the cheap reasons, and the queue bounds the rest.
func (h *hosts) forget(now time.Time) {
	var best string
	var least float64
	looked := 0
	for key, r := range h.all {
		if looked == 0 || r.at(now) < least {
			best, least = key, r.at(now)
		}
		if looked++; looked == evictLook || least == 0 {
			break
		}
	}
	delete(h.all, best)
}

func (h *hosts) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all)
}

// hostKey is what an address is remembered under: of IPv6 the first 64 bits, since one machine owns all the others.
func hostKey(host string) string {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return clip(host)
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is6() {
		if p, err := ip.Prefix(64); err == nil {
			return p.Addr().String()
		}
	}
	return ip.String()
}
