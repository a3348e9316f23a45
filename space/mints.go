package space

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

// mintGrace is how long an issuance outlives its credential in the log, so that clocks that differ a little never
// hide a key that the broker still accepts.
const mintGrace = time.Minute

// Mint is one credential that was issued to a lifecycle.
type Mint struct {
	UserKey string `json:"-"`
	// Epoch is that of the grant under which it was made; 0 in what older versions logged.
	Epoch   uint64    `json:"epoch,omitempty"`
	Issued  time.Time `json:"issued"`
	Expires time.Time `json:"expires"`
	// Connection says that the broker made the key for one connection, which the callout let in: nobody can come back with it,
	// so there is nothing to refuse, only a connection to end.
	Connection bool `json:"connection,omitempty"`
	// Stored is when the broker took the record, by its clock.
	Stored time.Time `json:"-"`
}

// LogMint records that a credential was issued to uid; Issued is set here. The record goes by itself a minute after the
// credential expires. Log before the credential is handed out: what is not in the log cannot be revoked by name.
//
// The log leaves a part of its bucket alone: however many credentials are issued, grants can be written, and so taken away. Agents leave
// more alone than it does, so it has room that comes back however many agents there were.
//
// Errors: expired when Expires is past; already-exists when the key is logged; resource-exhausted when the log is full.
func (g *Grants) LogMint(ctx context.Context, uid wire.UID, m Mint) error {
	userKey, expires := m.UserKey, m.Expires
	subject, err := g.mintSubject(uid, userKey)
	if err != nil {
		return err
	}
	now := time.Now()
	left := expires.Sub(now)
	if left <= 0 {
		return wire.Errorf(wire.CodeExpired, "log credential %q: it expired at %s", userKey, expires.UTC().Format(time.RFC3339))
	}
	body, err := json.Marshal(Mint{Epoch: m.Epoch, Issued: now.UTC(), Expires: expires.UTC(), Connection: m.Connection})
	if err != nil {
		return wire.Errorf(wire.CodeInternal, "encode issuance: %v", err)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := g.room.take(ctx, fmt.Sprintf("log credential %q", userKey), int64(len(subject)+len(body)+recordOverhead), issuances); err != nil {
		return err
	}
	_, err = g.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: body}, jetstream.WithExpectLastSequencePerSubject(0),
		jetstream.WithMsgTTL((left + mintGrace).Truncate(time.Second)), jetstream.WithRetryAttempts(0))
	if err = translate(fmt.Sprintf("log credential %q", userKey), err); wire.CodeOf(err) == wire.CodeConflict {
		return wire.Errorf(wire.CodeAlreadyExists, "log credential %q: it is in the log", userKey)
	}
	return err
}

// mintRecord is more than a record of the issuance log weighs.
const mintRecord = 512

// MintRoom refuses when [Grants.LogMint] would, for want of room: for whoever writes something before it logs.
func (g *Grants) MintRoom(ctx context.Context) error {
	return g.room.has(ctx, "log credential", mintRecord, issuances)
}

// Mints returns the credentials of uid that may not have expired yet, oldest first.
func (g *Grants) Mints(ctx context.Context, uid wire.UID) ([]Mint, error) {
	return g.mints(ctx, uid, leaderRequest{Seq: 1})
}

// MintsSince is Mints without what the broker stored before a time, of which there may be thousands. It is as exact as the clocks of
// brokers that led one after the other are alike.
func (g *Grants) MintsSince(ctx context.Context, uid wire.UID, since time.Time) ([]Mint, error) {
	return g.mints(ctx, uid, leaderRequest{Since: &since})
}

func (g *Grants) mints(ctx context.Context, uid wire.UID, from leaderRequest) ([]Mint, error) {
	if err := uid.Validate(); err != nil {
		return nil, err
	}
	prefix := g.prefix + "mint." + string(uid) + "."
	var out []Mint
	from.Next = prefix + "*"
	err := leaderScanFrom(ctx, g.js, g.stream, from, func(r record) error {
		m := Mint{UserKey: strings.TrimPrefix(r.Subject, prefix)}
		if err := wire.Decode(r.Data, &m, recordSize); err != nil {
			return wire.Errorf(wire.CodeInternal, "read issuance of %q: %w", m.UserKey, err)
		}
		m.Stored = r.Time
		out = append(out, m)
		return nil
	})
	return out, err
}

func (g *Grants) mintSubject(uid wire.UID, userKey string) (string, error) {
	if err := uid.Validate(); err != nil {
		return "", err
	}
	if userKey == "" || strings.ContainsAny(userKey, ".*> \t\r\n") {
		return "", wire.Errorf(wire.CodeBadRequest, "log credential: %q is no user key", userKey)
	}
	return g.prefix + "mint." + string(uid) + "." + userKey, nil
}
