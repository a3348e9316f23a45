//lint:file-ignore SA1019 hosts of today have nothing newer than log messages; those of tomorrow follow the resource

package mcpserver

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cotal-go/cotal/internal/logkey"
)

const (
	// inboxURI is the resource that changes when something new waits. It counts, and shows nothing that anybody wrote.
	inboxURI = "cotal://inbox"
	// channelCapability is the capability of clients that take notices into the conversation, and what they are called.
	channelCapability = "claude/channel"
	channelMethod     = "notifications/" + channelCapability
	// A client that takes nothing for pushWithin is told nothing of this.
	pushWithin = 5 * time.Second
	// pushGather is how long what else arrives is told with the first.
	pushGather = 50 * time.Millisecond
)

// capabilities are what the server says of itself beside what its tools and resources imply.
func capabilities() *mcp.ServerCapabilities {
	return &mcp.ServerCapabilities{Logging: &mcp.LoggingCapabilities{}, Experimental: map[string]any{channelCapability: map[string]any{}}}
}

func (s *Server) addResource(m *mcp.Server) {
	r := &mcp.Resource{URI: inboxURI, Name: "inbox", Title: "What waits", MIMEType: "text/plain", Description: "How many messages wait. It says that it changed when that is so; cotal_inbox shows them."}
	m.AddResource(r, func(ctx context.Context, _ *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: inboxURI, MIMEType: "text/plain", Text: s.summary(ctx)}}}, nil
	})
}

func (s *Server) summary(ctx context.Context) string {
	u := s.unread(ctx)
	return plural(uint64(u.here[classDirect])+u.queue, "direct message") + ", " + plural(uint64(u.here[classMention]), "mention") + ", " +
		plural(uint64(u.here[classAmbient]), "channel message") + " wait\n"
}

// tellClients tells clients that something new waits, until ctx ends.
func (s *Server) tellClients(ctx context.Context) {
	told := map[*item]bool{}
	for {
		select {
		case <-s.push:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(pushGather):
		case <-ctx.Done():
			return
		}
		line, fresh := s.freshWork(told)
		s.tellOnce(ctx, line, fresh)
	}
}

// freshWork is the notice of what wakes, and whether there is something that clients were not told of. It remembers that they are.
func (s *Server) freshWork(told map[*item]bool) (string, bool) {
	line, _, items := s.work()
	here := make(map[*item]bool, len(items))
	fresh := false
	for _, it := range items {
		fresh = fresh || !told[it]
		here[it] = true
	}
	clear(told)
	for it := range here {
		told[it] = true
	}
	return line, fresh
}

func (s *Server) tellOnce(ctx context.Context, line string, fresh bool) {
	ctx, cancel := context.WithTimeout(ctx, pushWithin)
	defer cancel()
	if err := s.mcp.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: inboxURI}); err != nil {
		s.log.DebugContext(ctx, "client not told", logkey.Error, err)
	}
	if !fresh {
		return
	}
	for ss := range s.mcp.Sessions() {
		if err := ss.Log(ctx, &mcp.LoggingMessageParams{Level: "notice", Logger: "cotal", Data: line}); err != nil {
			s.log.DebugContext(ctx, "client not told", logkey.Error, err)
		}
	}
	s.taps.notify(ctx, s.opts.Channel, line)
}

// taps are the connections of clients served by Serve, for notifications that the SDK does not have.
type taps struct {
	mu   sync.Mutex // guards open
	open map[*tap]*mcp.ServerSession
}

func (t *taps) add(c *tap, ss *mcp.ServerSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = map[*tap]*mcp.ServerSession{}
	}
	t.open[c] = ss
}

func (t *taps) remove(c *tap) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, c)
}

// notify sends the notice to clients that take it into the conversation: those that announce it, or all.
func (t *taps) notify(ctx context.Context, all bool, line string) {
	var conns []mcp.Connection
	t.mu.Lock()
	for c, ss := range t.open {
		p := ss.InitializeParams()
		if p == nil || p.Capabilities == nil {
			continue // it has not begun
		}
		if _, takes := p.Capabilities.Experimental[channelCapability]; takes || all {
			conns = append(conns, c.conn)
		}
	}
	t.mu.Unlock()
	params, err := json.Marshal(map[string]any{"content": line, "meta": map[string]string{"source": "cotal"}})
	if err != nil {
		return // a map of strings has a JSON form
	}
	for _, c := range conns {
		_ = c.Write(ctx, &jsonrpc.Request{Method: channelMethod, Params: params}) // a client that is gone is noticed elsewhere
	}
}

// tap is a transport that remembers its connection.
type tap struct {
	mcp.Transport
	conn mcp.Connection // set by Connect, before the session is known to anybody
}

// Connect implements mcp.Transport.
func (t *tap) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	t.conn = c
	return c, err
}
