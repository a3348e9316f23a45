package space_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

func TestChannelSettings(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	channels := space.NewChannels(js, lab)
	cfg := wire.ChannelConfig{Description: "talk", ReplayWindow: "2h"}

	if _, _, err := channels.Get(ctx, "team.a"); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("Get before Set = %v, want not-found", err)
	}
	rev := must(channels.Set(ctx, "team.a", cfg, space.Revision(0)))(t)
	if _, err := channels.Set(ctx, "team.a", cfg, space.Revision(0)); !errors.Is(err, wire.ErrConflict) {
		t.Errorf("second Set of a new one = %v, want conflict", err)
	}
	got, gotRev, err := channels.Get(ctx, "team.a")
	if err != nil || gotRev != rev || !cmp.Equal(got, cfg) {
		t.Errorf("Get = %+v revision %d, %v, want %+v revision %d", got, gotRev, err, cfg, rev)
	}
	rev2 := must(channels.Set(ctx, "team.a", wire.ChannelConfig{}, nil))(t)
	if _, err := channels.Set(ctx, "team.a", cfg, space.Revision(rev)); !errors.Is(err, wire.ErrConflict) {
		t.Errorf("Set of an old revision = %v, want conflict", err)
	}
	if err := channels.Remove(ctx, "team.a", space.Revision(rev)); !errors.Is(err, wire.ErrConflict) {
		t.Errorf("Remove of an old revision = %v, want conflict", err)
	}
	if err := channels.Remove(ctx, "team.a", space.Revision(rev2)); err != nil {
		t.Error(err)
	}
	if err := channels.Remove(ctx, "team.a", nil); err != nil {
		t.Errorf("Remove of what is gone = %v", err)
	}
	if _, _, err := channels.Get(ctx, "team.a"); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("Get after Remove = %v, want not-found", err)
	}
	if _, err := channels.Set(ctx, "team.a", cfg, space.Revision(0)); err != nil {
		t.Errorf("Set after Remove as a new one = %v", err)
	}
}

func TestChannelSettingsAreChecked(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	channels := space.NewChannels(js, lab)
	for name, try := range map[string]struct {
		channel string
		cfg     wire.ChannelConfig
	}{
		"pattern":          {"team.>", wire.ChannelConfig{}},
		"other_key":        {"=other", wire.ChannelConfig{}},
		"window":           {"a", wire.ChannelConfig{ReplayWindow: "2 weeks"}},
		"class":            {"a", wire.ChannelConfig{DeliveryClass: "maybe"}},
		"description":      {"a", wire.ChannelConfig{Description: strings.Repeat("x", 201)}},
		"defaults_unclear": {wire.DefaultsKey, wire.ChannelConfig{Description: "no class"}},
	} {
		if _, err := channels.Set(ctx, try.channel, try.cfg, nil); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("%s: Set = %v, want bad-request", name, err)
		}
	}
	if err := channels.Remove(ctx, wire.DefaultsKey, nil); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("Remove of the defaults = %v, want failed-precondition", err)
	}
}

func TestChannelsListIsSortedAndSkipsWhatItCannotRead(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	channels := space.NewChannels(js, lab)
	want := []string{wire.DefaultsKey}
	for i := range 2500 { // several batches
		name := fmt.Sprintf("c.%04d", 2499-i)
		must(js.PublishAsync(wire.RecordPrefix(wire.ChannelsBucket(lab))+name, []byte(`{"description":"x"}`), jetstream.WithStallWait(time.Minute)))(t)
		want = append(want, fmt.Sprintf("c.%04d", i))
	}
	<-js.PublishAsyncComplete()
	must(js.Publish(ctx, wire.RecordPrefix(wire.ChannelsBucket(lab))+"bad", []byte("{")))(t)
	must(channels.Set(ctx, "gone", wire.ChannelConfig{}, nil))(t)
	if err := channels.Remove(ctx, "gone", nil); err != nil {
		t.Fatal(err)
	}
	all, unreadable, err := channels.List(ctx)
	if err != nil || unreadable != 1 {
		t.Errorf("List = %d unreadable, %v, want 1", unreadable, err)
	}
	var got []string
	for _, c := range all {
		got = append(got, c.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
