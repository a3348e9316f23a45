package exchange

import (
	"container/list"
	"sync"
)

// bodies are those that a face is reading, a bounded number. When one more comes than there is room for, the peer that has
// most of them loses the one that it began first. So a peer that sends slowly keeps out neither others nor those who share its
// address, as all do behind a proxy that is not trusted to tell them apart, and all programs at the loopback face.
type bodies struct {
	room int

	mu    sync.Mutex // guards the rest
	order *list.List // of *reading, the one that began first in front
	peers map[string]int
}

// reading is one body on its way.
type reading struct {
	peer string
	cut  func() // ends the reading at once
	lost bool   // its place is another's
}

func newBodies(room int) *bodies {
	return &bodies{room: room, order: list.New(), peers: map[string]int{}}
}

// begin gives a peer a place, if need be that of another body, whose cut is called.
func (b *bodies) begin(peer string, cut func()) *list.Element {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.order.PushBack(&reading{peer: peer, cut: cut})
	b.peers[peer]++
	if b.order.Len() > b.room {
		b.drop()
	}
	return e
}

// drop takes a place away. The caller holds mu.
func (b *bodies) drop() {
	most := 0
	for _, n := range b.peers {
		most = max(most, n)
	}
	for e := b.order.Front(); e != nil; e = e.Next() {
		if r := e.Value.(*reading); b.peers[r.peer] == most {
			b.remove(e, r)
			r.lost = true
			r.cut()
			return
		}
	}
}

// end gives the place back, and reports whether it was lost before. No cut is called after it.
func (b *bodies) end(e *list.Element) (lost bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := e.Value.(*reading)
	if !r.lost {
		b.remove(e, r)
	}
	return r.lost
}

func (b *bodies) remove(e *list.Element, r *reading) {
	b.order.Remove(e)
	if b.peers[r.peer]--; b.peers[r.peer] == 0 {
		delete(b.peers, r.peer)
	}
}
