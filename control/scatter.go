package control

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// DefaultWindow is how long [Caller.Scatter] gathers when it is not told.
const DefaultWindow = time.Second

// maxAnswers bounds the instances that one scatter hears.
const maxAnswers = 1024

// Scatter asks every instance and gathers one answer of each, in the order they came, until window has passed or, with
// expect > 0, that many instances have answered. A window of 0 means one second. Refusals are answers with Err set.
//
// Without an expectation nothing says that all answered: who is silent cannot be told from who is not there. With one,
// fewer answers are an error deadline-exceeded beside the answers, with details "answered" and "expected". An error also
// says that nobody listens (unavailable), that nobody answered within the window (deadline-exceeded, outcome unknown), or
// that ctx ended first; the answers so far are returned with it.
func (c *Caller) Scatter(ctx context.Context, t Target, args any, window time.Duration, expect int) ([]Answer, error) {
	answers, err := c.scatter(ctx, &Invocation{Target: t, Args: args}, window, expect)
	if err != nil {
		return answers, fmt.Errorf("scatter %s.%s: %w", t.Endpoint, t.Command, err)
	}
	return answers, nil
}

func (c *Caller) scatter(ctx context.Context, inv *Invocation, window time.Duration, expect int) ([]Answer, error) {
	if inv.Instance != "" {
		return nil, wire.Errorf(wire.CodeBadRequest, "instance %q: a scatter asks every instance", inv.Instance)
	}
	if window <= 0 {
		window = DefaultWindow
	}
	f, err := c.send(ctx, inv, wire.RailAll, min(window, c.deadline(ctx, window)), maxAnswers)
	if err != nil {
		return nil, err
	}
	defer f.end()
	var answers []Answer
	heard := map[string]bool{}
	for expect <= 0 || len(answers) < expect {
		select {
		case r := <-f.replies:
			a, ok, err := f.read(r)
			if err != nil {
				return answers, err
			}
			if ok && !heard[a.Instance] && len(answers) < maxAnswers {
				heard[a.Instance] = true
				answers = append(answers, a)
			}
		case <-ctx.Done():
			return answers, ended(ctx, true)
		case <-f.timer.C:
			return answers, partial(len(answers), expect, f.allowed)
		}
	}
	return answers, nil
}

// partial says what a window that has passed leaves open.
func partial(answered, expected int, window time.Duration) error {
	switch {
	case expected <= 0 && answered > 0:
		return nil
	case expected <= 0:
		return wire.Errorf(wire.CodeDeadlineExceeded, "no instance answered within %v", window)
	}
	e := wire.Errorf(wire.CodeDeadlineExceeded, "%d of %d instances answered within %v", answered, expected, window)
	e.Details = map[string]any{"answered": answered, "expected": expected}
	return e
}

// Describe asks an endpoint for its contract and verifies every digest in it. Errors are those of [Caller.Call], and
// contract-mismatch for a contract that contradicts itself.
func (c *Caller) Describe(ctx context.Context, endpoint string) (*Contract, error) {
	t := Target{Endpoint: endpoint, Command: CommandDescribe}
	contract := new(Contract)
	if err := c.Call(ctx, t, nil, contract); err != nil {
		return nil, err
	}
	if contract.Endpoint != endpoint {
		return nil, wire.Errorf(wire.CodeContractMismatch, "describe %q: the contract is that of %q", endpoint, contract.Endpoint)
	}
	if err := contract.Verify(); err != nil {
		return nil, err
	}
	return contract, nil
}

// Health asks every instance how it is and gathers as [Caller.Scatter] does. Instance and epoch are those of the reply
// subject. An instance that refuses, or answers something else, is left out and makes an error.
func (c *Caller) Health(ctx context.Context, endpoint string, window time.Duration, expect int) ([]Health, error) {
	answers, err := c.Scatter(ctx, Target{Endpoint: endpoint, Command: CommandHealth}, nil, window, expect)
	all := make([]Health, 0, len(answers))
	for _, a := range answers {
		var h Health
		switch {
		case a.Err != nil:
			err = fmt.Errorf("health of %s instance %q: %w", endpoint, a.Instance, a.Err)
			continue
		case json.Unmarshal(a.Data, &h) != nil:
			err = wire.Errorf(wire.CodeContractMismatch, "health of %s instance %q: not a health answer", endpoint, a.Instance)
			continue
		}
		h.Endpoint, h.Instance, h.Epoch = endpoint, a.Instance, a.Epoch
		all = append(all, h)
	}
	return all, err
}
