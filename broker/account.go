package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

const (
	updateSubject = "$SYS.REQ.CLAIMS.UPDATE"
	deleteSubject = "$SYS.REQ.CLAIMS.DELETE"
)

func lookupSubject(public string) string { return "$SYS.REQ.ACCOUNT." + public + ".CLAIMS.LOOKUP" }

// claimStatus is what a server says about a claim request that it carried out.
type claimStatus struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// PutAccount gives the broker the claim of an account, new or changed, and returns nil once every server reads it back
// byte for byte. It takes effect at once: connections that the claim no longer allows are dropped. It repeats what
// may have been lost until ctx ends.
//
// The caller must be the only writer of the account and pass its newest claim: the broker compares nothing. After
// RemoveAccount the same bytes have no effect; encode the claim again.
//
// Errors: failed-precondition for a claim that is not valid, is about another account or was signed by another operator, with
// nothing sent; resource-exhausted, with "used" and "allowed", when its stream limits do not fit beside those of the other
// accounts, with nothing changed; conflict when the broker holds other bytes afterwards; ErrIncomplete; permission-denied; unavailable;
// deadline-exceeded. After these what the broker holds is unknown.
func (c *Control) PutAccount(ctx context.Context, public, token string) error {
	if err := c.checkClaim(public, token); err != nil {
		return fmt.Errorf("put account: %w", err)
	}
	c.putting.Lock()
	defer c.putting.Unlock()
	err := c.retry(ctx, func(ctx context.Context) error {
		if err := c.checkPromise(ctx, public, token); err != nil {
			return err
		}
		if err := c.claim(ctx, updateSubject, token); err != nil {
			return err
		}
		return c.holds(ctx, public, token)
	})
	if err != nil {
		return fmt.Errorf("put account %q: %w", public, err)
	}
	c.log.Info("account put", logkey.Account, public)
	return nil
}

// checkClaim stops a claim that would leave the account dead on the broker.
func (c *Control) checkClaim(public, token string) error {
	var err error
	if c.issuers != nil {
		_, err = c.issuers().account(public, token, time.Now())
	} else {
		_, err = decodeAccount(public, token, time.Now())
	}
	return err
}

// RemoveAccount takes an account from the broker and returns nil once no server knows it. Its connections are dropped, its
// streams stay on disk. deleteToken is signed by the operator. An account that is already gone is no error.
//
// Errors are those of PutAccount.
func (c *Control) RemoveAccount(ctx context.Context, public, deleteToken string) error {
	if !nkeys.IsValidPublicAccountKey(public) {
		return wire.Errorf(wire.CodeBadRequest, "remove account: %q is not the public key of an account", public)
	}
	c.putting.Lock()
	defer c.putting.Unlock()
	err := c.retry(ctx, func(ctx context.Context) error {
		if err := c.claim(ctx, deleteSubject, deleteToken); err != nil {
			return err
		}
		return c.holds(ctx, public, "")
	})
	if err != nil {
		return fmt.Errorf("remove account %q: %w", public, err)
	}
	c.log.Info("account removed", logkey.Account, public)
	return nil
}

// retry repeats do while the broker was not wholly reached and ctx leaves time.
func (c *Control) retry(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	for attempt := 0; ; attempt++ {
		err := do(ctx)
		again := errors.Is(err, ErrIncomplete) || errors.Is(err, wire.ErrConflict) || errors.Is(err, wire.ErrUnavailable)
		if !again || attempt >= 8 {
			return err
		}
		if dial.Wait(ctx, attempt) != nil {
			return err // says more than that time is up
		}
	}
}

// claim sends a claim request to every server and refuses when one refuses.
func (c *Control) claim(ctx context.Context, subject, token string) error {
	msgs, err := c.askAll(ctx, subject, token)
	for _, m := range msgs {
		a, err := decodeAnswer[claimStatus](m, subject)
		if err != nil {
			return err
		}
		if a.Error != nil {
			return wire.Errorf(wire.CodeFailedPrecondition, "server %q refused: %s", a.Server.Name, a.Error.Description)
		}
		if a.Data.Code != 200 {
			return wire.Errorf(wire.CodeFailedPrecondition, "server %q answered %d %q", a.Server.Name, a.Data.Code, a.Data.Message)
		}
	}
	return err
}

// askAll gathers one answer from every server of the broker.
func (c *Control) askAll(ctx context.Context, subject string, body any) ([]*nats.Msg, error) {
	servers, err := c.servers(ctx)
	if err != nil {
		return nil, err
	}
	return c.gather(ctx, subject, body, func(got []*nats.Msg) bool { return len(got) >= len(servers) })
}

// holds checks that every server holds exactly token for the account; "" means none.
func (c *Control) holds(ctx context.Context, public, token string) error {
	msgs, err := c.askAll(ctx, lookupSubject(public), nil)
	if err != nil {
		return err
	}
	for _, m := range msgs {
		if string(m.Data) != token {
			return wire.Errorf(wire.CodeConflict, "the broker reads back another claim than was sent")
		}
	}
	return nil
}

// Lookup returns the claim that the broker holds for an account.
//
// Errors: not-found when every server answered and none knows the account, conflict when they hold different claims,
// ErrIncomplete, permission-denied, unavailable, deadline-exceeded.
func (c *Control) Lookup(ctx context.Context, public string) (string, error) {
	if !nkeys.IsValidPublicAccountKey(public) {
		return "", wire.Errorf(wire.CodeBadRequest, "look up account: %q is not the public key of an account", public)
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	msgs, err := c.askAll(ctx, lookupSubject(public), nil)
	if err != nil {
		return "", fmt.Errorf("look up account %q: %w", public, err)
	}
	held := string(msgs[0].Data)
	for _, m := range msgs[1:] {
		if string(m.Data) != held {
			return "", wire.Errorf(wire.CodeConflict, "look up account %q: the servers of the broker hold different claims", public)
		}
	}
	if held == "" {
		return "", wire.Errorf(wire.CodeNotFound, "look up account %q: the broker does not know it", public)
	}
	return held, nil
}
