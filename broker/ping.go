package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/wire"
)

// MinVersion is the oldest nats-server this package works with.
const MinVersion = "2.15"

const pingSubject = "$SYS.REQ.SERVER.PING"

// ServerInfo is one server of a broker.
type ServerInfo struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Host        string    `json:"host"`
	Cluster     string    `json:"cluster,omitempty"`
	Version     string    `json:"version"`
	JetStream   bool      `json:"jetstream"`
	Start       time.Time `json:"start"`
	Connections int       `json:"connections"`
	MemoryBytes int64     `json:"memoryBytes"`

	maxMemory, maxStore int64 // what all accounts together may be promised
}

// stats is the part of a server's own figures that is used here.
type stats struct {
	Start       time.Time `json:"start"`
	Mem         int64     `json:"mem"`
	Connections int       `json:"connections"`
	Active      int       `json:"active_servers"` // servers it knows, itself included
	JetStream   struct {
		Config struct {
			MaxMemory int64 `json:"max_memory"`
			MaxStore  int64 `json:"max_storage"`
		} `json:"config"`
	} `json:"jetstream"`
}

// pong is the answer to a ping, which names its data differently from all the others.
type pong struct {
	Server serverRef `json:"server"`
	Stats  stats     `json:"statsz"`
}

// Ping asks every server of the broker who it is and returns them by name. The servers that answered are also returned
// with an error.
//
// Errors: failed-precondition when one is older than MinVersion, ErrIncomplete when one that its peers know did not answer,
// unavailable when none did.
func (c *Control) Ping(ctx context.Context) ([]ServerInfo, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	servers, err := c.servers(ctx)
	if err != nil {
		return servers, err
	}
	var old error
	for _, s := range servers {
		if !recent(s.Version) {
			old = errors.Join(old, wire.Errorf(wire.CodeFailedPrecondition, "server %q runs nats-server %q, at least %s is needed", s.Name, s.Version, MinVersion))
		}
	}
	return servers, old
}

// servers lists the servers of the broker. An answer says how many its sender knows; the listing is complete when as many
// have answered.
func (c *Control) servers(ctx context.Context) ([]ServerInfo, error) {
	var found []ServerInfo
	var bad error
	read, want := 0, 0
	enough := func(got []*nats.Msg) bool {
		for ; read < len(got); read++ {
			a, err := decodePong(got[read])
			if err != nil {
				bad = err
				return true
			}
			want = max(want, a.Stats.Active)
			found = append(found, ServerInfo{
				ID: a.Server.ID, Name: a.Server.Name, Host: a.Server.Host, Cluster: a.Server.Cluster, Version: a.Server.Version,
				JetStream: a.Server.JetStream, Start: a.Stats.Start, Connections: a.Stats.Connections, MemoryBytes: a.Stats.Mem,
				maxMemory: a.Stats.JetStream.Config.MaxMemory, maxStore: a.Stats.JetStream.Config.MaxStore,
			})
		}
		return len(found) >= want
	}
	_, err := c.gather(ctx, pingSubject, nil, enough)
	slices.SortFunc(found, func(a, b ServerInfo) int { return cmp.Compare(a.Name, b.Name) })
	switch {
	case bad != nil:
		return found, bad
	case errors.Is(err, ErrIncomplete):
		return found, fmt.Errorf("ping broker: %d of %d: %w", len(found), want, err)
	}
	return found, err
}

// recent reports whether version is MinVersion or later. A version that cannot be read is not.
func recent(version string) bool {
	have, ok := majorMinor(version)
	floor, _ := majorMinor(MinVersion)
	return ok && slices.Compare(have, floor) >= 0
}

func majorMinor(version string) ([]int, bool) {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return nil, false
	}
	var n []int
	for _, p := range parts[:2] {
		v, err := strconv.Atoi(p)
		if err != nil {
			return nil, false
		}
		n = append(n, v)
	}
	return n, true
}

func decodePong(msg *nats.Msg) (pong, error) {
	var p pong
	if err := json.Unmarshal(msg.Data, &p); err != nil || p.Server.ID == "" {
		return p, wire.Errorf(wire.CodeInternal, "control broker: unreadable answer to %q", pingSubject)
	}
	return p, nil
}
