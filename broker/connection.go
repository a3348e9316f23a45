package broker

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

const (
	// pageSize is how many connections one answer carries; each brings its credential, so pages are short.
	pageSize = 256
	// listAttempts is how often a listing that changed while it was read is begun again.
	listAttempts = 5
	// evictRounds is how often Evict kicks what comes back.
	evictRounds = 6
)

// connectionsSubject is where every server lists the connections of one account, whatever the request says.
func connectionsSubject(account string) string { return "$SYS.REQ.ACCOUNT." + account + ".CONNZ" }

func kickSubject(serverID string) string { return "$SYS.REQ.SERVER." + serverID + ".KICK" }

// Connection is one client of an account, as the broker sees it.
type Connection struct {
	ServerID   string `json:"serverId"`
	ServerName string `json:"server"`
	CID        uint64 `json:"cid"` // unique on its server until that restarts

	Account string   `json:"account"`
	UserKey string   `json:"userKey"` // public key of the credential
	User    string   `json:"user"`    // name in the credential
	Tags    []string `json:"tags"`    // tags in the credential, spelled as minted
	// IssuedAt and Expires are those of the credential; Expires is zero when it does not expire.
	IssuedAt time.Time `json:"issuedAt"`
	Expires  time.Time `json:"expires"`

	Name    string `json:"name"` // what the client calls itself: a claim
	Lang    string `json:"lang"`
	Version string `json:"version"`
	Address string `json:"address"` // IP, or "" in process

	Start        time.Time `json:"start"`
	LastActivity time.Time `json:"lastActivity"`
	Subs         int       `json:"subs"`
	// Subscriptions are the subjects, when asked for with WithSubscriptions.
	Subscriptions []string `json:"subscriptions,omitempty"`
	MessagesIn    int64    `json:"messagesIn"`
	MessagesOut   int64    `json:"messagesOut"`
	PendingBytes  int      `json:"pendingBytes"`
}

// HasTags reports whether the connection's credential carries all of tags, spelled exactly so.
func (c Connection) HasTags(tags ...string) bool {
	for _, t := range tags {
		if !slices.Contains(c.Tags, t) {
			return false
		}
	}
	return true
}

// ListOption adjusts one call of Connections.
type ListOption func(*listRequest)

// WithSubscriptions also lists the subjects that each connection subscribes to.
func WithSubscriptions() ListOption { return func(r *listRequest) { r.Subscriptions = true } }

// OfUser lists the connections of one user key only.
func OfUser(userKey string) ListOption { return func(r *listRequest) { r.User = userKey } }

// listRequest is one page of a connection listing.
type listRequest struct {
	Auth          bool   `json:"auth"`
	Account       string `json:"acc"`
	User          string `json:"user,omitempty"`
	Subscriptions bool   `json:"subscriptions,omitempty"`
	Sort          string `json:"sort"`
	Offset        int    `json:"offset"`
	Limit         int    `json:"limit"`
	Server        string `json:"server_name,omitempty"`
	Exact         bool   `json:"exact_match,omitempty"`
}

// listPage is one server's answer to it.
type listPage struct {
	ID    string     `json:"server_id"`
	Total int        `json:"total"`
	Conns []connInfo `json:"connections"`
}

type connInfo struct {
	CID          uint64    `json:"cid"`
	IP           string    `json:"ip"`
	Start        time.Time `json:"start"`
	LastActivity time.Time `json:"last_activity"`
	Pending      int       `json:"pending_bytes"`
	InMsgs       int64     `json:"in_msgs"`
	OutMsgs      int64     `json:"out_msgs"`
	NumSubs      int       `json:"subscriptions"`
	Name         string    `json:"name"`
	Lang         string    `json:"lang"`
	Version      string    `json:"version"`
	User         string    `json:"authorized_user"`
	Account      string    `json:"account"`
	Subs         []string  `json:"subscriptions_list"`
	JWT          string    `json:"jwt"`
	Tags         []string  `json:"tags"`
}

// Connections lists the clients of an account on every server, ordered by server and connection id.
//
// Errors: ErrIncomplete when the listing may miss a connection, because a server did not answer or because connections came
// and went faster than it could be read; permission-denied; unavailable; deadline-exceeded. No list comes with an error.
func (c *Control) Connections(ctx context.Context, account string, opts ...ListOption) ([]Connection, error) {
	if !nkeys.IsValidPublicAccountKey(account) {
		return nil, wire.Errorf(wire.CodeBadRequest, "list connections: %q is not the public key of an account", account)
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	req := listRequest{Auth: true, Account: account, Sort: "cid", Limit: pageSize}
	for _, o := range opts {
		o(&req)
	}
	all, err := c.list(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("list connections of account %q: %w", account, err)
	}
	slices.SortFunc(all, func(a, b Connection) int {
		return cmp.Or(cmp.Compare(a.ServerName, b.ServerName), cmp.Compare(a.CID, b.CID))
	})
	return all, nil
}

// list reads the first page of every server at once, then the rest of those that have more.
func (c *Control) list(ctx context.Context, req listRequest) ([]Connection, error) {
	msgs, err := c.askAll(ctx, connectionsSubject(req.Account), req)
	if err != nil {
		return nil, err
	}
	var all []Connection
	for _, m := range msgs {
		a, err := decodePage(m, req.Account)
		if err != nil {
			return nil, err
		}
		conns := a.Data.Conns
		if a.Data.Total > len(conns) {
			if conns, err = c.listServer(ctx, req, a); err != nil {
				return nil, err
			}
		}
		for _, ci := range conns {
			all = append(all, ci.connection(a.Server))
		}
	}
	return all, nil
}

// listServer reads the further pages of one server. Connections are sorted by an id that only grows, and each page begins
// with the last entry of the one before: if it is not there, somebody before it left, entries moved up, and one could
// have been skipped, so the listing begins again.
func (c *Control) listServer(ctx context.Context, req listRequest, first answer[listPage]) ([]connInfo, error) {
	req.Server, req.Exact = first.Server.Name, true
	page := first
	for range listAttempts {
		conns := page.Data.Conns
		for moved := false; !moved; {
			if len(conns) >= page.Data.Total || len(conns) == 0 {
				return conns, nil
			}
			var err error
			req.Offset = len(conns) - 1
			if page, err = c.listPage(ctx, req); err != nil {
				return nil, err
			}
			next := page.Data.Conns
			if moved = len(next) == 0 || next[0].CID != conns[len(conns)-1].CID; !moved {
				conns = append(conns, next[1:]...)
			}
		}
		req.Offset = 0
		var err error
		if page, err = c.listPage(ctx, req); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("server %q changed while it was read: %w", first.Server.Name, ErrIncomplete)
}

// listPage asks one server for one page.
func (c *Control) listPage(ctx context.Context, req listRequest) (answer[listPage], error) {
	msgs, err := c.gather(ctx, connectionsSubject(req.Account), req, one)
	if err != nil {
		return answer[listPage]{}, err
	}
	return decodePage(msgs[0], req.Account)
}

func decodePage(m *nats.Msg, account string) (answer[listPage], error) {
	a, err := decodeAnswer[listPage](m, connectionsSubject(account))
	if err == nil && a.Error != nil {
		err = wire.Errorf(wire.CodeInternal, "server %q refused: %s", a.Server.Name, a.Error.Description)
	}
	return a, err
}

func (ci connInfo) connection(s serverRef) Connection {
	c := Connection{
		ServerID: s.ID, ServerName: s.Name, CID: ci.CID, Account: ci.Account, UserKey: ci.User, User: ci.User, Tags: ci.Tags,
		Name: ci.Name, Lang: ci.Lang, Version: ci.Version, Address: ci.IP, Start: ci.Start, LastActivity: ci.LastActivity,
		Subs: ci.NumSubs, Subscriptions: ci.Subs, MessagesIn: ci.InMsgs, MessagesOut: ci.OutMsgs, PendingBytes: ci.Pending,
	}
	claim, ok := readClaim(ci.JWT)
	if !ok {
		return c // a user without a credential of its own, such as one the broker made
	}
	c.User, c.IssuedAt = claim.Name, time.Unix(claim.IssuedAt, 0)
	if claim.Subject != "" {
		c.UserKey = claim.Subject
	}
	if claim.Expires != 0 {
		c.Expires = time.Unix(claim.Expires, 0)
	}
	return c
}

// userClaim is what a listing shows of a user JWT.
type userClaim struct {
	Subject  string `json:"sub"`
	Name     string `json:"name"`
	IssuedAt int64  `json:"iat"`
	Expires  int64  `json:"exp"`
}

// readClaim reads a user JWT without verifying it: the broker has, and a signature costs more than all the rest of a listing.
func readClaim(token string) (userClaim, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return userClaim{}, false
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return userClaim{}, false
	}
	var claim userClaim
	return claim, json.Unmarshal(body, &claim) == nil
}

// Kick drops one connection. It is not a ban: a client whose credential is still good comes back within the second.
//
// Errors: not-found when the connection is gone, permission-denied, unavailable, deadline-exceeded.
func (c *Control) Kick(ctx context.Context, conn Connection) error {
	if !nkeys.IsValidPublicServerKey(conn.ServerID) {
		return wire.Errorf(wire.CodeBadRequest, "kick connection %d: %q is not the id of a server", conn.CID, conn.ServerID)
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	subject := kickSubject(conn.ServerID)
	body := struct {
		CID uint64 `json:"cid"`
	}{conn.CID}
	msgs, err := c.gather(ctx, subject, body, one)
	if err != nil {
		return fmt.Errorf("kick connection %d of server %q: %w", conn.CID, conn.ServerID, err)
	}
	a, err := decodeAnswer[any](msgs[0], subject)
	if err != nil {
		return err
	}
	if a.Error != nil {
		return wire.Errorf(wire.CodeNotFound, "kick connection %d of server %q: %s", conn.CID, conn.ServerID, a.Error.Description)
	}
	return nil
}

// Evict drops every connection of the account that match accepts and proves it: it lists, kicks, and lists again until a
// complete listing has none. It returns how many connections were dropped. Revoke first, or they come back.
//
// Errors: conflict when matching connections kept coming back; else those of Connections.
func (c *Control) Evict(ctx context.Context, account string, match func(Connection) bool) (int, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	dropped := 0
	for round := range evictRounds {
		if round > 1 && !sleepUntil(ctx, time.Now().Add(20*time.Millisecond<<round)) {
			break
		}
		all, err := c.Connections(ctx, account)
		if err != nil {
			return dropped, fmt.Errorf("evict: %w", err)
		}
		n, left, err := c.kickAll(ctx, all, match)
		dropped += n
		if err != nil {
			return dropped, fmt.Errorf("evict: %w", err)
		}
		if left == 0 {
			c.log.Info("connections evicted", logkey.Account, account, logkey.Count, dropped)
			return dropped, nil
		}
	}
	return dropped, wire.Errorf(wire.CodeConflict, "evict: connections of account %q keep coming back after %d were dropped: revoke their credentials first", account, dropped)
}

// kickAll drops the matching connections of a listing and counts them.
func (c *Control) kickAll(ctx context.Context, all []Connection, match func(Connection) bool) (dropped, matching int, err error) {
	for _, conn := range all {
		if !match(conn) {
			continue
		}
		matching++
		switch err := c.Kick(ctx, conn); {
		case err == nil:
			dropped++
		case errors.Is(err, wire.ErrNotFound): // went by itself
		default:
			return dropped, matching, err
		}
	}
	return dropped, matching, nil
}

// EvictKeys is Evict for the connections of the credentials with these user keys. No keys match nothing and are refused.
func (c *Control) EvictKeys(ctx context.Context, account string, userKeys ...string) (int, error) {
	if len(userKeys) == 0 {
		return 0, wire.Errorf(wire.CodeBadRequest, "evict connections of account %q: no keys given", account)
	}
	return c.Evict(ctx, account, func(conn Connection) bool { return slices.Contains(userKeys, conn.UserKey) })
}

// EvictTagged is Evict for the connections whose credential carries all of tags. No tags match nothing and are refused.
func (c *Control) EvictTagged(ctx context.Context, account string, tags ...string) (int, error) {
	if len(tags) == 0 {
		return 0, wire.Errorf(wire.CodeBadRequest, "evict connections of account %q: no tags given", account)
	}
	return c.Evict(ctx, account, func(conn Connection) bool { return conn.HasTags(tags...) })
}
