package space

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

// undoTimeout bounds taking back what a failed creation made, also after the caller's context ended.
const undoTimeout = 10 * time.Second

// Ensure makes the space what the options say: it creates what is missing, brings caps and ages to the options
// (a lower one drops what is beyond it), and writes the default delivery class when the space has none. A space that the
// build before made is brought to the present [Schema], in place. It is idempotent, also after a crash at any point.
//
// Errors: [ErrDrift] (also wire.ErrPrecondition) when an existing object differs in anything but a cap or an age,
// nothing changed; resource-exhausted, with the details "resource", "needed", "used" and "allowed", when a limit of
// the account or the broker is met, and what this call created is gone again; bad-request for options outside
// their bounds; unavailable and deadline-exceeded from the broker, in which case running it again completes.
func Ensure(ctx context.Context, js jetstream.JetStream, s wire.Space, opts *Options) error {
	o, err := opts.withDefaults()
	if err != nil {
		return err
	}
	want, err := plan(s, o)
	if err != nil {
		return err
	}
	v, err := inspect(ctx, js, s, want)
	if err != nil {
		return err
	}
	if bad := blocking(v.drifts); len(bad) > 0 {
		return &DriftError{Space: s, Drifts: bad}
	}
	for _, c := range v.changed {
		if _, err := js.UpdateStream(ctx, c); err != nil {
			return shortage(ctx, js, c, fmt.Sprintf("update stream %q of space %q", c.Name, s), err)
		}
	}
	if err := create(ctx, js, s, v.missing); err != nil {
		return err
	}
	return writeDefaults(ctx, js, s, o.DefaultClass)
}

// Verify returns every difference between the space and the plan, missing objects and reconcilable settings
// included, and changes nothing. An empty list means the space is as [Ensure] would leave it.
func Verify(ctx context.Context, js jetstream.JetStream, s wire.Space, opts *Options) ([]Drift, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	want, err := plan(s, o)
	if err != nil {
		return nil, err
	}
	v, err := inspect(ctx, js, s, want)
	return v.drifts, err
}

// Remove deletes every stream and bucket of the space and with them all their consumers. Nothing is left; what is
// gone already is not an error, so it completes an interrupted removal.
func Remove(ctx context.Context, js jetstream.JetStream, s wire.Space) error {
	var none *Options
	o, _ := none.withDefaults()
	all, err := plan(s, o)
	if err != nil {
		return err
	}
	for _, c := range all {
		if err := js.DeleteStream(ctx, c.Name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return translate(fmt.Sprintf("remove stream %q of space %q", c.Name, s), err)
		}
	}
	return nil
}

// view is the broker's side of a plan.
type view struct {
	drifts           []Drift
	missing, changed []jetstream.StreamConfig
}

func inspect(ctx context.Context, js jetstream.JetStream, s wire.Space, want []jetstream.StreamConfig) (view, error) {
	var v view
	present := false
	for _, c := range want {
		st, err := js.Stream(ctx, c.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			v.missing = append(v.missing, c)
			v.drifts = append(v.drifts, Drift{Object: "stream " + c.Name, Want: "present", Have: "missing", Reconcilable: true})
			continue
		}
		if err != nil {
			return view{}, translate(fmt.Sprintf("inspect stream %q of space %q", c.Name, s), err)
		}
		have := st.CachedInfo().Config
		if diff := compareStream(c, have); len(diff) > 0 {
			if upgradable(s, c, have) {
				for i := range diff {
					diff[i].Reconcilable = true
				}
			}
			v.drifts = append(v.drifts, diff...)
			v.changed = append(v.changed, reconciled(c, have))
		}
		present = present || c.Name == BucketStream(wire.ChannelsBucket(s))
	}
	if !present {
		return v, nil
	}
	drift, err := verifyDefaults(ctx, js, s)
	v.drifts = append(v.drifts, drift...)
	return v, err
}

// reconciled keeps what the broker has and is not compared.
func reconciled(want, have jetstream.StreamConfig) jetstream.StreamConfig {
	want.Description, want.Compression, want.Placement = have.Description, have.Compression, have.Placement
	return want
}

// create makes the missing streams, or none of them.
func create(ctx context.Context, js jetstream.JetStream, s wire.Space, missing []jetstream.StreamConfig) error {
	var made []string
	for _, c := range missing {
		if _, err := js.CreateStream(ctx, c); err != nil {
			err = shortage(ctx, js, c, fmt.Sprintf("create stream %q of space %q", c.Name, s), err)
			return errors.Join(err, takeBack(ctx, js, append(made, c.Name), err))
		}
		made = append(made, c.Name)
	}
	return nil
}

// takeBack deletes what a creation made. The last name is the one that failed: after a lost answer it may exist.
func takeBack(ctx context.Context, js jetstream.JetStream, names []string, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if !errors.Is(cause, wire.ErrDeadline) {
		names = names[:len(names)-1]
	}
	for _, name := range names {
		if err := js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return translate(fmt.Sprintf("take back stream %q", name), err)
		}
	}
	return nil
}

// writeDefaults records the default delivery class of a new space. An existing record is never touched.
func writeDefaults(ctx context.Context, js jetstream.JetStream, s wire.Space, class wire.DeliveryClass) error {
	_, err := NewChannels(js, s).Set(ctx, wire.DefaultsKey, wire.ChannelConfig{DeliveryClass: string(class)}, Revision(0))
	if errors.Is(err, wire.ErrConflict) {
		return nil
	}
	return err
}

// verifyDefaults reports defaults that name no delivery class: it is never inferred, so a person must say which.
func verifyDefaults(ctx context.Context, js jetstream.JetStream, s wire.Space) ([]Drift, error) {
	drift := Drift{Object: "record " + wire.DefaultsKey + " of " + wire.ChannelsBucket(s), Field: "deliveryClass", Want: "live or durable", Have: "none"}
	cfg, _, err := NewChannels(js, s).Get(ctx, wire.DefaultsKey)
	switch {
	case errors.Is(err, wire.ErrNotFound):
		drift.Field, drift.Want, drift.Have, drift.Reconcilable = "", "present", "missing", true
		return []Drift{drift}, nil
	case err != nil:
		return nil, err
	case cfg.DeliveryClass == "":
		return []Drift{drift}, nil
	}
	return nil, nil
}
