package supervisor

import (
	"context"

	"github.com/cotal-go/cotal/supervisor/relay"
	"github.com/cotal-go/cotal/supervisor/seat"
	"github.com/cotal-go/cotal/wire"
)

// seatTerminal is the terminal of a seat, as sessions see it.
type seatTerminal struct{ c *seat.Client }

func (t seatTerminal) Input(ctx context.Context, data []byte) error { return t.c.Input(ctx, data) }

func (t seatTerminal) Resize(ctx context.Context, cols, rows int) error {
	return t.c.Resize(ctx, cols, rows)
}

func (t seatTerminal) Size(ctx context.Context) (cols, rows int, err error) {
	i, err := t.c.Info(ctx)
	return i.Cols, i.Rows, err
}

func (t seatTerminal) View(ctx context.Context) (relay.View, error) {
	v, err := t.c.View(ctx, seat.ViewOptions{})
	if err != nil {
		return nil, err
	}
	return seatView{v, t.c}, nil
}

// pacedTerminal is one of a seat that counts what it writes.
type pacedTerminal struct{ seatTerminal }

var _ relay.Pacer = pacedTerminal{}

func (t pacedTerminal) Type(ctx context.Context, data []byte) (uint64, error) {
	return t.c.Type(ctx, data)
}

func (t pacedTerminal) Written(ctx context.Context, end uint64) (uint64, error) {
	return t.c.Written(ctx, end)
}

type seatView struct {
	v *seat.View
	c *seat.Client
}

func (v seatView) Close() error { return v.v.Close() }

func (v seatView) Next(ctx context.Context) (relay.Frame, error) {
	f, err := v.v.Next(ctx)
	if err != nil {
		return relay.Frame{}, err
	}
	out := relay.Frame{Data: f.Data, Cols: f.Cols, Rows: f.Rows}
	switch f.Kind {
	case seat.Snapshot:
		out.Kind = relay.Snapshot
	case seat.Output:
		out.Kind = relay.Output
	case seat.Resized:
		out.Kind = relay.Resized
	case seat.Ended:
		out.Kind, out.Exit = relay.Ended, v.exit(ctx)
	}
	return out, nil
}

// exit is what the agent ended with. The seat says it to its other connection too, a moment before or after the view.
func (v seatView) exit(ctx context.Context) *wire.SessionExit {
	select {
	case <-v.c.Done():
	case <-ctx.Done():
		return nil
	}
	e, ok := v.c.Exit()
	if !ok {
		return nil
	}
	return &wire.SessionExit{Code: e.Code, Signal: e.Signal, At: e.At.UnixMilli(), LastLines: e.LastLines}
}
