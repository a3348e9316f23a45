package seat

// ring keeps the last bytes of a stream, by their place in it. It holds no memory before the first byte, and at most its limit. It is
// guarded by the seat's mutex.
type ring struct {
	limit      int
	buf        []byte
	start, end int64 // places in the stream of the first byte kept and of the next to come
}

func (r *ring) write(p []byte) {
	r.end += int64(len(p))
	if len(p) > r.limit {
		p = p[len(p)-r.limit:]
	}
	if r.buf == nil && len(p) > 0 {
		r.buf = make([]byte, r.limit)
	}
	at := int((r.end - int64(len(p))) % int64(max(r.limit, 1)))
	n := copy(r.buf[min(at, len(r.buf)):], p)
	copy(r.buf, p[n:])
	r.start = max(r.start, r.end-int64(r.limit))
}

// forget drops everything, and the memory.
func (r *ring) forget() {
	r.start, r.buf = r.end, nil
}

// read copies what follows place from. It reports false when that is no longer kept.
func (r *ring) read(into []byte, from int64) (int, bool) {
	if from < r.start {
		return 0, false
	}
	n := int(min(r.end-from, int64(len(into))))
	if n == 0 {
		return 0, true
	}
	at := int(from % int64(r.limit))
	c := copy(into[:n], r.buf[at:])
	copy(into[c:n], r.buf)
	return n, true
}
