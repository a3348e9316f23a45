package target

import (
	"context"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

// Memberships reads every page of who is a member of what. At is when the broker's connections were last looked at, zero
// when they could not be.
func Memberships(ctx context.Context, ep *endpoint.Endpoint, req wire.MembershipsRequest) (all []wire.MemberInfo, at time.Time, err error) {
	all = []wire.MemberInfo{}
	for {
		page, err := ep.Memberships(ctx, req)
		if err != nil {
			return nil, at, err
		}
		all = append(all, page.Members...)
		if page.LiveAt > 0 {
			at = time.UnixMilli(page.LiveAt).UTC()
		}
		if page.Next == "" || page.Next <= req.After {
			return all, at, nil
		}
		req.After = page.Next
	}
}
