package mcp

import (
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// lastAnswers is how long what was asked before the input ended may take.
	lastAnswers = 10 * time.Second
	// takeOver is how long the tools of one agent wait for those before them to end: their last answers, and then some.
	takeOver = lastAnswers + 5*time.Second
	// listening is the call that is answered only when the session ends.
	listening = "subscriptions/listen"
)

// finishing is a transport whose input ends once what came before is answered: the protocol's session gives up whatever is under way
// when it sees the end.
type finishing struct{ sdk.Transport }

// Connect implements sdk.Transport.
func (f finishing) Connect(ctx context.Context) (sdk.Connection, error) {
	c, err := f.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	a := &asked{Connection: c, answer: make(chan struct{}, 1), over: make(chan struct{}), calls: map[jsonrpc.ID]bool{}}
	context.AfterFunc(ctx, a.end)
	return a, nil
}

// asked is a connection that knows which calls are not answered.
type asked struct {
	sdk.Connection
	answer chan struct{} // has one value after an answer
	over   chan struct{} // closed by end
	once   sync.Once     // closes over

	mu    sync.Mutex // guards calls
	calls map[jsonrpc.ID]bool
}

// end says that no answer comes any more.
func (a *asked) end() { a.once.Do(func() { close(a.over) }) }

// Read implements sdk.Connection.
func (a *asked) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := a.Connection.Read(ctx)
	if err != nil {
		a.finish()
		return nil, err
	}
	if r, ok := msg.(*jsonrpc.Request); ok && r.IsCall() && r.Method != listening {
		a.mu.Lock()
		a.calls[r.ID] = true
		a.mu.Unlock()
	}
	return msg, nil
}

// finish returns when every call is answered, or that takes too long or can no more be.
func (a *asked) finish() {
	late := time.NewTimer(lastAnswers)
	defer late.Stop()
	for a.open() {
		select {
		case <-a.answer:
		case <-a.over:
			return
		case <-late.C:
			return
		}
	}
}

func (a *asked) open() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.calls) > 0
}

// Write implements sdk.Connection.
func (a *asked) Write(ctx context.Context, msg jsonrpc.Message) error {
	err := a.Connection.Write(ctx, msg)
	if err != nil && ctx.Err() == nil {
		a.end() // the session writes nothing more
	}
	if r, ok := msg.(*jsonrpc.Response); ok {
		a.mu.Lock()
		delete(a.calls, r.ID)
		a.mu.Unlock()
		select {
		case a.answer <- struct{}{}:
		default:
		}
	}
	return err
}

// Close implements sdk.Connection.
func (a *asked) Close() error {
	a.end()
	return a.Connection.Close()
}
