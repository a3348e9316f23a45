package broker

import (
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/cotal-go/cotal/wire"
)

// Stats is a snapshot of an embedded broker for people to read.
type Stats struct {
	ID      string        `json:"id"`
	Name    string        `json:"name"`
	Version string        `json:"version"` // of nats-server
	Uptime  time.Duration `json:"uptime"`

	Connections      int    `json:"connections"`
	TotalConnections uint64 `json:"totalConnections"` // since the start
	Subscriptions    int    `json:"subscriptions"`
	SlowConsumers    int64  `json:"slowConsumers"` // connections dropped for not reading, since the start
	MessagesIn       int64  `json:"messagesIn"`
	MessagesOut      int64  `json:"messagesOut"`
	ProcessBytes     int64  `json:"processBytes"` // resident memory of the whole process

	Streams     int    `json:"streams"`
	Consumers   int    `json:"consumers"`
	Messages    uint64 `json:"messages"`    // stored in all streams
	StoreBytes  uint64 `json:"storeBytes"`  // used on disk
	MemoryBytes uint64 `json:"memoryBytes"` // used by memory streams
	MaxStore    int64  `json:"maxStore"`    // cap on disk in bytes, 0 for none
	MaxMemory   int64  `json:"maxMemory"`   // cap in memory in bytes, 0 for none
	APIErrors   uint64 `json:"apiErrors"`   // refused JetStream requests since the start

	Impaired []Impairment `json:"impaired,omitempty"` // see Server.Impaired
}

// Stats reads the broker's counters. Error: unavailable after Shutdown.
func (s *Server) Stats() (Stats, error) {
	srv, err := s.running()
	if err != nil {
		return Stats{}, fmt.Errorf("read broker counters: %w", err)
	}
	s.mu.Lock()
	began := s.started
	s.mu.Unlock()
	v, err := srv.Varz(nil)
	if err != nil {
		return Stats{}, wire.Errorf(wire.CodeInternal, "read broker counters: %v", err)
	}
	js, err := srv.Jsz(nil)
	if err != nil {
		return Stats{}, wire.Errorf(wire.CodeInternal, "read stream counters: %v", err)
	}
	return Stats{
		ID: v.ID, Name: v.Name, Version: server.VERSION, Uptime: time.Since(began),
		Connections: v.Connections, TotalConnections: v.TotalConnections, Subscriptions: int(v.Subscriptions),
		SlowConsumers: v.SlowConsumers, MessagesIn: v.InMsgs, MessagesOut: v.OutMsgs, ProcessBytes: v.Mem,
		Streams: js.Streams, Consumers: js.Consumers, Messages: js.Messages,
		StoreBytes: js.Store, MemoryBytes: js.Memory, MaxStore: s.opts.MaxStore, MaxMemory: s.opts.MaxMemory,
		APIErrors: js.API.Errors, Impaired: s.Impaired(),
	}, nil
}
