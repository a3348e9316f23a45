package target

import (
	"context"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/trust"
)

// Probe joins the space for nothing but asking services how they are, with a credential from the records of the project. It
// works where the person cannot join: in a space of people where they have not signed in. The caller closes it.
func (t *Target) Probe(ctx context.Context) (*endpoint.Endpoint, error) {
	node, err := t.Node(ctx)
	if err != nil {
		return nil, err
	}
	tc, err := t.TLS()
	if err != nil {
		return nil, err
	}
	src := endpoint.SourceFunc(func(ctx context.Context) (*trust.Credentials, error) {
		return node.Authority().ServiceCredential(ctx, t.Space(), trust.Probe, 0)
	})
	ep, err := endpoint.Connect(ctx, t.Config.Server.Value, src, &endpoint.Options{TLS: tc, Quiet: true, Space: t.Space(), Logger: t.env.Quiet()})
	if err != nil {
		return nil, untouched(ctx, t.Explain(err))
	}
	return ep, nil
}
