package endpoint_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

// keeper plays delivery for one member of one channel, "team", in a world where a test also plays the broker's republishing.
type keeper struct {
	w *openWorld

	mu      sync.Mutex
	all     []wire.PulledMessage
	lasts   map[wire.Principal]uint64
	end     uint64 // of the stream
	class   string
	gen     uint64 // 0: no membership
	joined  uint64
	left    uint64 // 0: open
	floor   uint64
	handled []wire.SequenceRange
	losses  []wire.Loss
	pointer uint64 // sequence of the last pointer
	pointed uint64 // up to which they are handled
	fail    map[string]error
	hold    map[string]chan struct{} // commands that wait until it is closed
	calls   map[string]int
	acks    *journal[wire.AckRequest]
}

func newKeeper(w *openWorld) *keeper {
	k := &keeper{
		w: w, class: "durable", lasts: map[wire.Principal]uint64{}, fail: map[string]error{}, hold: map[string]chan struct{}{},
		calls: map[string]int{}, acks: newJournal[wire.AckRequest](),
	}
	w.unserve()
	w.serve(nil, k.register)
	return k
}

func command[In, Out any](s *control.Service, k *keeper, name string, fn func(In) (Out, error)) {
	control.Handle(s, control.Command{Name: name, Effect: control.Write}, func(ctx context.Context, _ *control.Request, in In) (Out, error) {
		k.mu.Lock()
		k.calls[name]++
		hold := k.hold[name]
		k.mu.Unlock()
		if hold != nil {
			select {
			case <-hold:
			case <-ctx.Done():
			}
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if err := k.fail[name]; err != nil {
			var none Out
			return none, err
		}
		return fn(in)
	})
}

func (k *keeper) register(s *control.Service) {
	command(s, k, wire.CommandJoin, k.join)
	command(s, k, wire.CommandPull, k.pull)
	command(s, k, wire.CommandAck, k.ack)
	command(s, k, wire.CommandLeave, k.leave)
	command(s, k, wire.CommandHistory, k.history)
}

func (k *keeper) join(in wire.JoinRequest) (wire.JoinReply, error) {
	r := wire.JoinReply{Pattern: in.Pattern, Class: k.class, Frontier: k.end, Joined: k.end}
	if k.class != "durable" {
		return r, nil
	}
	r.Durable, r.Resumed = true, k.gen > 0 && k.left == 0
	if !r.Resumed {
		if k.gen == 0 {
			k.floor = max(k.floor, k.end) // nothing of an earlier interval waits
		}
		k.gen++
		k.joined, k.left = k.end, 0
	}
	r.Generation, r.Joined, r.Floor, r.Handled = k.gen, k.joined, k.floor, k.handled
	return r, nil
}

func (k *keeper) pull(in wire.PullRequest) (wire.PullReply, error) {
	if !in.Mentions && k.gen == 0 {
		return wire.PullReply{}, wire.Errorf(wire.CodeNotFound, "no membership")
	}
	r := wire.PullReply{Pattern: in.Pattern, Generation: k.gen, Messages: []wire.PulledMessage{}, Through: max(k.end, in.After), Losses: k.losses}
	if k.left > 0 {
		r.Through, r.Ended = k.left, true
	}
	for _, m := range k.all {
		if (m.Stored > 0) != in.Mentions || m.Sequence <= in.After {
			continue
		}
		if in.Mentions && m.Sequence <= k.pointed || !in.Mentions && (m.Sequence <= k.floor || within(k.handled, m.Sequence)) {
			continue
		}
		if !in.Mentions && (m.Sequence <= k.joined || k.left > 0 && m.Sequence > k.left) {
			continue
		}
		if len(r.Messages) == min(in.Limit, 100) {
			r.Next = r.Messages[len(r.Messages)-1].Sequence
			r.Through, r.Ended = r.Next, false
			break
		}
		r.Messages = append(r.Messages, m)
	}
	if in.Mentions && r.Next == 0 {
		r.Through = k.pointer
	}
	return r, nil
}

func (k *keeper) ack(in wire.AckRequest) (wire.AckReply, error) {
	k.acks.add(in)
	if k.gen == 0 && !in.Mentions {
		return wire.AckReply{}, wire.Errorf(wire.CodeNotFound, "no membership")
	}
	if in.Mentions {
		k.pointed = in.Floor
		return wire.AckReply{Floor: in.Floor}, nil
	}
	k.floor, k.handled = max(k.floor, in.Floor), in.Handled
	r := wire.AckReply{Floor: k.floor}
	if k.left > 0 && k.floor >= k.left {
		k.gen, r.Ended = 0, true
	}
	return r, nil
}

func (k *keeper) leave(in wire.LeaveRequest) (wire.LeaveReply, error) {
	if k.gen == 0 || k.left > 0 {
		return wire.LeaveReply{}, wire.Errorf(wire.CodeNotFound, "no membership")
	}
	k.left = k.end
	if in.Discard {
		k.gen = 0
	}
	return wire.LeaveReply{Pattern: in.Pattern, Left: k.end}, nil
}

func (k *keeper) history(in wire.HistoryRequest) (wire.HistoryReply, error) {
	r := wire.HistoryReply{Channel: in.Channel, Messages: []wire.HistoryMessage{}}
	for _, m := range k.all {
		if m.Stored > 0 || m.Sequence < in.From || in.Until > 0 && m.Sequence > in.Until {
			continue
		}
		if len(r.Messages) == min(in.Limit, 100) {
			r.Next = m.Sequence
			break
		}
		r.Messages = append(r.Messages, m.HistoryMessage)
	}
	return r, nil
}

func within(ranges []wire.SequenceRange, seq uint64) bool {
	return slices.ContainsFunc(ranges, func(r wire.SequenceRange) bool { return r.From <= seq && seq <= r.To })
}

// store keeps a message of a sender; live says whether its live copy comes too. It returns the sequence.
func (k *keeper) store(from wire.Principal, text string, live bool, change ...func(*wire.Message)) uint64 {
	k.w.tb.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.end++
	m := &wire.Message{
		ID: fmt.Sprint("id", k.end), TS: 1, Space: lab, From: wire.EndpointRef{ID: from.String(), Name: from.Actor}, Channel: "team",
		Parts: []wire.Part{wire.Text(text)},
	}
	for _, c := range change {
		c(m)
	}
	data := must(m.AppendJSON(nil))(k.w.tb)
	k.all = append(k.all, wire.PulledMessage{Channel: "team", HistoryMessage: wire.HistoryMessage{
		Sequence: k.end, TimeMS: 1700000000000, Sender: from.String(), Message: data,
	}})
	if live {
		k.w.liveCopy(from, "team", k.end, k.lasts[from], data)
	}
	k.lasts[from] = k.end
	return k.end
}

// skip moves the stream's end, as messages of other channels do.
func (k *keeper) skip(n uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.end += n
}

// set changes something while nothing is served.
func (k *keeper) set(fn func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	fn()
}

func (k *keeper) called(name string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.calls[name]
}

// member is an endpoint that has joined "team", and what it was told.
type member struct {
	*endpoint.Membership
	ep     *endpoint.Endpoint
	got    *journal[*endpoint.Delivery]
	events *journal[endpoint.Event]
}

func (k *keeper) member(opts *endpoint.JoinOptions, fn func(*endpoint.Delivery), change ...func(*endpoint.Options)) *member {
	k.w.tb.Helper()
	m := &member{got: newJournal[*endpoint.Delivery](), events: newJournal[endpoint.Event]()}
	o := &endpoint.Options{OnEvent: m.events.add}
	for _, c := range change {
		c(o)
	}
	m.ep = k.w.connect("carol", o)
	m.join(k.w.tb, opts, fn)
	return m
}

func (m *member) join(tb testing.TB, opts *endpoint.JoinOptions, fn func(*endpoint.Delivery)) {
	tb.Helper()
	m.Membership = must(m.ep.Join(tb.Context(), "team", func(d *endpoint.Delivery) {
		m.got.add(d)
		if fn != nil {
			fn(d)
		}
	}, opts))(tb)
}

// wait waits for a message with the text.
func (m *member) wait(tb testing.TB, text string) []*endpoint.Delivery {
	tb.Helper()
	return m.got.waitFor(tb, fmt.Sprintf("%q", text), func(all []*endpoint.Delivery) bool {
		return len(all) > 0 && all[len(all)-1].Message.Text() == text
	})
}

// want checks everything that was shown.
func (m *member) want(tb testing.TB, list string) {
	tb.Helper()
	if got := texts(m.got.list()); got != list {
		tb.Errorf("shown %q, want %q", got, list)
	}
}

// floor waits until delivery has recorded a position.
func (k *keeper) wantFloor(tb testing.TB, floor uint64) {
	tb.Helper()
	k.acks.waitFor(tb, fmt.Sprint("a report of floor ", floor), func(all []wire.AckRequest) bool {
		return len(all) > 0 && all[len(all)-1].Floor == floor
	})
}
