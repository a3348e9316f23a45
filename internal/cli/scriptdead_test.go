package cli_test

import (
	"context"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

// cmdPark gives the next job of a role back until the broker hands it over no more: park <folder> <credential>.
func cmdPark(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: park <folder> <credential>")
	}
	ts.Check(park(runOf(ts, args[0]).URL, ts.MkAbs(args[1])))
}

func park(server, creds string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ep, err := endpoint.Connect(ctx, server, endpoint.File(creds), &endpoint.Options{Quiet: true, MaxAttempts: 2 * wire.MaxDeliveries})
	if err != nil {
		return err
	}
	defer func() { _ = ep.Close() }()
	given := make(chan *endpoint.Delivery, wire.MaxDeliveries)
	if err := ep.HandleRole(ctx, func(d *endpoint.Delivery) {
		if d.Nak(ctx, 0) == nil {
			given <- d
		}
	}); err != nil {
		return err
	}
	var job *endpoint.Delivery
	for range wire.MaxDeliveries {
		select {
		case job = <-given:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	// The broker finds out when it looks for the next one to hand over.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := ep.Receipt(ctx, wire.ReceiptRequest{ID: job.Message.ID, Kind: job.Kind.String(), Sequence: job.Sequence})
		if err != nil || r.Stage == wire.StageDead {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
