package mcpserver

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

const (
	// hooklessAfter is when a host whose hooks never spoke is taken for one that has none: then what types the line must judge alone.
	hooklessAfter = time.Minute
	// A turn that new messages begin by themselves costs a token of wakeBurst, which come back one each wakeEvery.
	wakeBurst = 6
	wakeEvery = 30 * time.Second
	// What woke the agent once and is still not read wakes it again after rewakeFirst, doubling, rewakes times.
	rewakeFirst = time.Minute
	rewakes     = 5
	// offerStands is how long a hook may take to say that it has written what it was given.
	offerStands = 5 * time.Second
	// busyPause is before the next try when the terminal was busy.
	busyPause = 5 * time.Second
)

// host is what is known of the program that the agent lives in.
type host struct {
	hooked bool // hooks are expected
	begun  time.Time

	mu        sync.Mutex // guards the fields below
	spoke     bool       // a hook did
	status    wire.Status
	activity  string
	condition *wire.Condition // how the last turn failed, until the next work begins
	attention string
	dirty     bool   // the presence record says something else
	stopping  bool   // a hook that tells of an end is being answered, maybe with the next turn
	offered   string // the page that a turn is to begin with, until the hook says that it was written
	offeredAt time.Time
	shown     string // the page that the turn began with, until the host is known to keep it or may have dropped it
	sessions

	tokens   float64
	counted  time.Time // when tokens was right
	woken    map[*item]bool
	lastWake time.Time
	again    int // how often what is not read woke since
}

func newHost(hooked bool, now time.Time) *host {
	return &host{
		hooked: hooked, begun: now, status: wire.StatusIdle, attention: wire.AttentionOpen, tokens: wakeBurst, counted: now,
		woken: map[*item]bool{},
	}
}

// set notes what the host does.
func (h *host) set(status wire.Status, activity string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status, h.activity, h.dirty = status, activity, true
}

// begins notes that the host works. With that the end of the turn before is over.
func (h *host) begins(activity string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beginsLocked(activity)
}

func (h *host) beginsLocked(activity string) {
	h.status, h.activity, h.condition, h.dirty = wire.StatusWorking, activity, nil, true
}

// ends notes that the host has ended a turn, and reports whether that turn failed: by this word, or by an earlier one since which no
// work began.
func (h *host) ends(failure string, now time.Time) (failed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status, h.activity, h.dirty, h.stopping = wire.StatusIdle, "", true, true
	if failure != "" {
		h.condition = conditionOf(failure, now)
	}
	return h.condition != nil
}

func (h *host) mode() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.attention
}

func (h *host) now() (status wire.Status, activity, attention string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.status, h.activity, h.attention
}

// takeTokenLocked reports whether messages may begin one more turn now, and else when.
func (h *host) takeTokenLocked(now time.Time) (bool, time.Duration) {
	h.tokens = min(wakeBurst, h.tokens+float64(now.Sub(h.counted))/float64(wakeEvery))
	h.counted = now
	if h.tokens < 1 {
		return false, time.Duration((1 - h.tokens) * float64(wakeEvery))
	}
	h.tokens--
	return true, 0
}

// wakeableLocked reports whether the host waits for somebody to begin a turn, and else after how long to look again; 0 for never.
func (h *host) wakeableLocked(now time.Time) (bool, time.Duration) {
	if h.hooked && !h.spoke {
		if wait := hooklessAfter - now.Sub(h.begun); wait > 0 {
			return false, wait
		}
		return true, 0
	}
	if h.stopping {
		return false, 0
	}
	if wait := offerStands - now.Sub(h.offeredAt); h.offered != "" && wait > 0 {
		return false, wait
	}
	return h.status == wire.StatusIdle, 0
}

// event is one thing that the host's hooks tell.
func (s *Server) event(ctx context.Context, r hookRequest) hookReply {
	h := s.host
	if !h.hears(r) {
		return hookReply{V: hookVersion, Other: true}
	}
	switch r.Event {
	case EventSessionStart:
		h.forgo()
		s.sessionStarts(ctx, r.Detail)
	case EventPrompt:
		h.forgo()
		h.begins("")
		return s.offer(ctx, atPrompt)
	case EventTool:
		h.begins(claim(r.Detail.Tool, maxName))
		s.lives(ctx, r.Detail)
	case EventNotification:
		switch r.Detail.Kind {
		case KindInput: // whatever became of the turn before
			h.forgo()
			if status, _, _ := h.now(); status != wire.StatusIdle {
				h.set(wire.StatusIdle, "")
			}
			signal(s.wake)
		case KindNews:
		default:
			h.set(wire.StatusWaiting, oneLine(r.Detail.Kind+": "+r.Detail.Message))
		}
	case EventStop:
		return s.stopped(ctx, r.Detail)
	case EventEnd:
		return hookReply{V: hookVersion, over: !r.Detail.moves()}
	}
	signal(s.presence)
	return hookReply{V: hookVersion}
}

func (s *Server) sessionStarts(ctx context.Context, d Detail) {
	h := s.host
	h.mu.Lock()
	compacted := d.Source == "compact" && h.status != wire.StatusIdle // a turn goes on
	if !compacted {
		h.status, h.activity, h.dirty = wire.StatusIdle, "", true
	}
	reset := d.Source != "compact" && h.attention != wire.AttentionOpen
	h.mu.Unlock()
	if reset {
		if err := s.setAttention(ctx, wire.AttentionOpen); err != nil {
			s.log.WarnContext(ctx, "attention not told", logkey.Error, err)
		}
	}
	signal(s.wake)
}

// stopped is told that a turn has ended: it begins the next when there are messages for that, not too often.
func (s *Server) stopped(ctx context.Context, d Detail) hookReply {
	h := s.host
	kept := s.lives(ctx, d)
	h.forgo()
	failed := h.ends(d.Error, time.Now())
	defer func() {
		h.mu.Lock()
		h.stopping = false
		h.mu.Unlock()
		signal(s.wake) // for what began no turn, also when the hook dies with it
	}()
	signal(s.presence)
	if !failed && kept && !d.Dropped && s.anyGiven(atStop) {
		h.mu.Lock()
		ok, _ := h.takeTokenLocked(time.Now())
		h.mu.Unlock()
		if ok {
			return s.offer(ctx, atStop)
		}
	}
	return hookReply{V: hookVersion}
}

func (s *Server) anyGiven(at moment) bool {
	mode, found := s.host.mode(), false
	s.inbox.each(func(it *item) bool {
		found = given(it, mode, at)
		return !found
	})
	return found
}

// offer makes the page that a turn is to begin with.
func (s *Server) offer(ctx context.Context, at moment) hookReply {
	r := hookReply{V: hookVersion}
	signal(s.presence)
	ctx, cancel := context.WithTimeout(ctx, askWithin) // the hook waits 2 s
	defer cancel()
	mode := s.host.mode()
	p := s.compose(ctx, hookChars, func(it *item) bool { return given(it, mode, at) })
	if p.count == 0 {
		return r
	}
	r.Page, r.Block = p.id, at == atStop
	r.Context = p.text + s.tail(ctx, p, true) + fmt.Sprintf(pageMark, p.id)
	s.host.mu.Lock()
	s.host.offered, s.host.offeredAt = p.id, time.Now()
	s.host.mu.Unlock()
	return r
}

// conditions are what a host's word for a failure means, by a part of it.
var conditions = []struct{ part, code string }{
	{"rate", "rate_limit"}, {"429", "rate_limit"}, {"overload", "overloaded"}, {"529", "overloaded"}, {"auth", "auth"}, {"401", "auth"}, {"billing", "billing"},
	{"credit", "billing"}, {"payment", "billing"}, {"credential", "auth"}, {"verification", "auth"}, {"context", "context"}, {"length", "context"},
	{"max_output", "context"}, {"invalid", "request"}, {"400", "request"}, {"model", "model"}, {"server", "server"}, {"500", "server"}, {"request", "request"},
}

func conditionOf(failure string, now time.Time) *wire.Condition {
	c := &wire.Condition{Code: "failed", Source: claim(failure, maxName), Since: now.UnixMilli()}
	low := strings.ToLower(failure)
	for _, k := range conditions {
		if strings.Contains(low, k.part) {
			c.Code = k.code
			break
		}
	}
	return c
}

// keepPresence tells the space what the host does, until ctx ends.
func (s *Server) keepPresence(ctx context.Context) {
	var told *wire.Condition
	for {
		select {
		case <-s.presence:
		case <-ctx.Done():
			return
		}
		h := s.host
		h.mu.Lock()
		dirty, status, activity, c := h.dirty, h.status, h.activity, h.condition
		h.dirty = false
		h.mu.Unlock()
		if !dirty {
			continue
		}
		err := s.ep.SetStatus(ctx, status, activity)
		if err == nil && c != told {
			if err = s.ep.SetCondition(ctx, c); err == nil {
				told = c
			}
		}
		if err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "presence not told", logkey.Error, err)
		}
	}
}

// setAttention changes how the agent is disturbed, and says so.
func (s *Server) setAttention(ctx context.Context, attention string) error {
	if err := s.ep.SetAttention(ctx, attention); err != nil {
		return err
	}
	s.host.mu.Lock()
	s.host.attention = attention
	s.host.mu.Unlock()
	signal(s.wake)
	return nil
}
