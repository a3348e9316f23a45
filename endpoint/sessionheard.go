package endpoint

import (
	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/wire"
)

// sessionUnheard is how often in a row the broker says that nobody hears an open before the session is given up: within some 1.75 s. A manager
// that came back a little later than the viewer has heard it by then; one that was started again never does.
const sessionUnheard = 4

// unheard is where the broker says that nobody hears what was said.
type unheard struct {
	nc    *nats.Conn // what sub is on
	sub   *nats.Subscription
	count int // since the turn began
}

// askHeard returns where the broker is to say, on nc, that nobody hears an open. It is a subject of the session's own: whoever hears the
// open learns it, and must not learn where other answers come. "" for nowhere: silence says the same, later. mu is held.
func (s *Session) askHeard(nc *nats.Conn) string {
	u := &s.unheard
	if u.nc != nc {
		s.forgetHeard()
		sub, err := nc.Subscribe(nc.NewInbox(), s.nobodyHears)
		if err != nil {
			return ""
		}
		u.nc, u.sub = nc, sub
	}
	return u.sub.Subject
}

// forgetHeard ends the subscription. mu is held.
func (s *Session) forgetHeard() {
	if s.unheard.sub != nil {
		_ = s.unheard.sub.Unsubscribe() // a connection that is gone has ended it
	}
	s.unheard.nc, s.unheard.sub = nil, nil
}

// nobodyHears counts what the broker says.
func (s *Session) nobodyHears(m *nats.Msg) {
	if len(m.Data) > 0 || statusOf(m) != statusNoResponders {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil || s.answer || s.down || s.pace { // what is piped in is not sent again: it is worth the wait for a manager that is slow to come back
		return
	}
	if s.unheard.count++; s.unheard.count >= sessionUnheard {
		s.finishLocked(wire.Errorf(wire.CodeUnavailable, "read session %q: nobody serves it any more; its manager was started again or is gone", s.offer.Session))
	}
}
