package wire_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/cotal-go/cotal/wire"
)

func TestDeadSubjects(t *testing.T) {
	t.Parallel()
	want := []string{
		"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.DM_main.>", "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.DM_main.>",
		"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.TASK_main.>", "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.TASK_main.>",
	}
	if got := wire.DeadSubjects("main"); !slices.Equal(got, want) {
		t.Errorf("DeadSubjects = %q, want %q", got, want)
	}
	if got, want := wire.DeadFilter("DM_main", "dm_x"), "$JS.EVENT.ADVISORY.CONSUMER.*.DM_main.dm_x"; got != want {
		t.Errorf("DeadFilter = %q, want %q", got, want)
	}
	for subject, want := range map[string]wire.DeadSubject{
		"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.DM_main.dm_x":    {Stream: "DM_main", Consumer: "dm_x"},
		"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.TASK_main.svc_x": {Terminated: true, Stream: "TASK_main", Consumer: "svc_x"},
	} {
		if got, err := wire.ParseDeadSubject(subject); err != nil || got != want {
			t.Errorf("ParseDeadSubject(%q) = %+v, %v, want %+v", subject, got, err, want)
		}
	}
	for _, bad := range []string{
		"", "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.DM_main", "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.DM_main.", "$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED.DM_main.x",
		"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.DM_main.x.y", "x.$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.DM_main.x", "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES..x",
	} {
		if got, err := wire.ParseDeadSubject(bad); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("ParseDeadSubject(%q) = %+v, %v, want bad-request", bad, got, err)
		}
	}
}

func TestDurableNamesReadBack(t *testing.T) {
	t.Parallel()
	l := wire.Lifecycle{Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "ada_1"}, UID: wire.NewUID()}
	if got, err := wire.ParseDirectDurable(wire.DirectDurable(l)); err != nil || got != l {
		t.Errorf("ParseDirectDurable = %v, %v, want %v", got, err, l)
	}
	if got, err := wire.ParseRoleDurable(wire.RoleDurable("code-review")); err != nil || got != "code-review" {
		t.Errorf("ParseRoleDurable = %q, %v, want code-review", got, err)
	}
	for _, bad := range []string{"", "dm_", "dm_a-b", "dm_a-b-c", "dm_a-b-" + string(l.UID) + "-x", "svc_x"} {
		if got, err := wire.ParseDirectDurable(bad); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("ParseDirectDurable(%q) = %v, %v, want bad-request", bad, got, err)
		}
	}
	for _, bad := range []string{"", "svc_", "svc_a.b", "dm_x"} {
		if got, err := wire.ParseRoleDurable(bad); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("ParseRoleDurable(%q) = %q, %v, want bad-request", bad, got, err)
		}
	}
}
