package space_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

func TestAuditAppendAndRead(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	audit := space.NewAudit(js, lab)
	if entries, next, err := audit.Read(ctx, space.AuditQuery{Newest: true}); err != nil || len(entries) != 0 || next != 0 {
		t.Errorf("Read of nothing = %v, %d, %v", entries, next, err)
	}
	want := event()
	for range 2 { // the second time the broker has it
		if err := audit.Append(ctx, want); err != nil {
			t.Fatal(err)
		}
	}
	if err := audit.Append(ctx, space.AuditEvent{By: "stranger", Action: space.ActionExchange, Outcome: space.OutcomeDenied, Detail: "\x1b[2J" + strings.Repeat("é\n", 600)}); err != nil {
		t.Fatal(err)
	}
	entries, next, err := audit.Read(ctx, space.AuditQuery{})
	if err != nil || len(entries) != 2 || next != 2 {
		t.Fatalf("Read = %d records, %d, %v, want two", len(entries), next, err)
	}
	if got := entries[0]; got.Seq != 1 || got.Stored.IsZero() || got.Unreadable != "" || !cmp.Equal(got.AuditEvent, want) {
		t.Errorf("record = %+v, want\n%+v", got, want)
	}
	got := entries[1]
	if got.Unreadable != "" || got.Ver != 1 || got.ID == "" || time.Since(got.At) > time.Minute || len([]rune(got.Detail)) != space.MaxAuditDetail || strings.ContainsAny(got.Detail, "\x1b\n") {
		t.Errorf("what was left out is not filled in, or the detail not made fit: %+v", got)
	}
	for name, e := range map[string]space.AuditEvent{
		"wildcard": event(func(e *space.AuditEvent) { e.Target, e.UID = "local.>", "" }),
		"version":  event(func(e *space.AuditEvent) { e.Ver = 2 }),
		"empty":    {},
	} {
		if err := audit.Append(ctx, e); err == nil {
			t.Errorf("%s: appended", name)
		}
	}
	if entries, next, err = audit.Read(ctx, space.AuditQuery{After: next}); err != nil || len(entries) != 0 || next != 2 {
		t.Errorf("Read after the end = %v, %d, %v, want nothing and 2", entries, next, err)
	}
	if _, _, err := audit.Read(ctx, space.AuditQuery{Limit: space.MaxAuditPage + 1}); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("Read of too many = %v, want bad-request", err)
	}
	if _, _, err := audit.Read(ctx, space.AuditQuery{Action: "*"}); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("Read of a wildcard = %v, want bad-request", err)
	}
	if _, _, err := space.NewAudit(js, "nowhere").Read(ctx, space.AuditQuery{}); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("Read without a stream = %v, want failed-precondition", err)
	}
	if err := space.NewAudit(js, "nowhere").Append(ctx, event()); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("Append without a stream = %v, want unavailable", err)
	}
}

// Every query gives what a plain look through all records gives.
func TestAuditQueriesAgreeWithAModel(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	audit := space.NewAudit(js, lab)
	ctx := ctxFor(t)
	names := []string{"", "local.ada", "local.ada", "local.ada", "local.bob"}
	var all []space.AuditEntry
	for i := range 400 {
		e := least(func(e *space.AuditEvent) {
			e.Target = names[i*i%len(names)]
			e.Action, e.Outcome = []string{space.ActionConnect, space.ActionGrant, space.ActionRevoke}[i%3], space.AuditOutcomes()[i/100%3]
		})
		if i > 300 && i < 390 { // a long stretch of one kind
			e.Target = "local.carol"
		}
		if err := audit.Append(ctx, e); err != nil {
			t.Fatal(err)
		}
		all = append(all, space.AuditEntry{Seq: uint64(i + 1), AuditEvent: e})
	}
	entries, _, err := audit.Read(ctx, space.AuditQuery{Limit: space.MaxAuditPage})
	if err != nil || len(entries) != len(all) {
		t.Fatalf("Read of all = %d records, %v", len(entries), err)
	}
	for i := range all {
		all[i].Stored = entries[i].Stored
	}
	if diff := cmp.Diff(all, entries); diff != "" {
		t.Fatal(diff)
	}
	rapid.Check(t, func(rt *rapid.T) {
		q := space.AuditQuery{
			After: uint64(rapid.IntRange(0, 410).Draw(rt, "after")), Limit: rapid.IntRange(1, 40).Draw(rt, "limit"), Newest: rapid.Bool().Draw(rt, "newest"),
			Action:  rapid.SampledFrom([]string{"", "", space.ActionGrant, space.ActionView}).Draw(rt, "action"),
			Outcome: rapid.SampledFrom([]string{"", "", space.OutcomeDenied}).Draw(rt, "outcome"),
		}
		if name := rapid.SampledFrom([]string{"", "local.ada", "local.bob", "local.carol", "local.dan"}).Draw(rt, "principal"); name != "" {
			q.Principal, _ = wire.ParsePrincipal(name)
		}
		if i := rapid.IntRange(-200, 399).Draw(rt, "since"); i >= 0 {
			q.Since = all[i].Stored
		}
		want := slices.DeleteFunc(slices.Clone(all), func(e space.AuditEntry) bool {
			return e.Seq <= q.After || !q.Principal.IsZero() && e.Target != q.Principal.String() || q.Action != "" && e.Action != q.Action ||
				q.Outcome != "" && e.Outcome != q.Outcome || e.Stored.Before(q.Since)
		})
		if q.Newest {
			want = want[max(0, len(want)-q.Limit):]
		}
		want = want[:min(len(want), q.Limit)]
		next := q.After
		if n := len(want); n > 0 {
			next = want[n-1].Seq
		} else {
			want = nil
		}
		got, gotNext, err := audit.Read(ctx, q)
		if diff := cmp.Diff(want, got); err != nil || gotNext != next || diff != "" {
			rt.Fatalf("%+v: next %d, %v, want %d:\n%s", q, gotNext, err, next, diff)
		}
	})
}

// The newest and what is since a time cost what they hold, not what is before them.
func TestAuditTailIsCheap(t *testing.T) {
	bareBubble(t, func(t *testing.T, js jetstream.JetStream) {
		ctx := t.Context()
		if err := space.Ensure(ctx, js, lab, nil); err != nil {
			t.Fatal(err)
		}
		audit := space.NewAudit(js, lab)
		write := func(n int, target string) {
			for range n {
				if err := audit.Append(ctx, least(func(e *space.AuditEvent) { e.Target = target })); err != nil {
					t.Fatal(err)
				}
			}
		}
		write(20, "local.bob") // far back
		write(2000, "local.ada")
		time.Sleep(time.Hour)
		recent := time.Now()
		time.Sleep(time.Second)
		write(30, "local.carol")
		bob := must(wire.ParsePrincipal("local.bob"))(t)
		for name, c := range map[string]struct {
			q          space.AuditQuery
			want, cost int
		}{
			"newest":               {space.AuditQuery{Newest: true, Limit: 10}, 10, 12},
			"newest_of_one":        {space.AuditQuery{Newest: true, Limit: 10, Principal: bob}, 10, 30},
			"since":                {space.AuditQuery{Since: recent}, 30, 34},
			"newest_since":         {space.AuditQuery{Since: recent, Newest: true, Limit: 100}, 30, 34},
			"since_now":            {space.AuditQuery{Since: recent.Add(time.Hour)}, 0, 1},
			"newest_of_one_recent": {space.AuditQuery{Since: recent, Newest: true, Principal: bob}, 0, 1},
		} {
			before := js.Conn().Stats().OutMsgs
			entries, _, err := audit.Read(ctx, c.q)
			if cost := int(js.Conn().Stats().OutMsgs - before); err != nil || len(entries) != c.want || cost > c.cost {
				t.Errorf("%s: %d records for %d requests, %v, want %d for at most %d", name, len(entries), cost, err, c.want, c.cost)
			}
		}
	})
}

func TestUnreadableAuditRecordsAreListed(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	audit := space.NewAudit(js, lab)
	of := func(target string) func(*space.AuditEvent) { return func(e *space.AuditEvent) { e.Target = target } }
	if err := audit.Append(ctx, least(of("local.ada"))); err != nil {
		t.Fatal(err)
	}
	at := must(wire.AuditSubject(lab, wire.Principal{Owner: wire.LocalOwner, Actor: "ada"}, space.ActionConnect, space.OutcomeDenied))(t)
	foreign := string(must(least(of("local.bob")).Encode())(t))
	for _, body := range []string{"", "not json", `{"ver":2,"who":"local.ada"}`, foreign} {
		must(js.Publish(ctx, at, []byte(body)))(t)
	}
	if err := audit.Append(ctx, least(of("local.ada"))); err != nil {
		t.Fatal(err)
	}
	entries, _, err := audit.Read(ctx, space.AuditQuery{Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "ada"}, Newest: true})
	if err != nil || len(entries) != 6 {
		t.Fatalf("Read = %d records, %v, want all six", len(entries), err)
	}
	for i, e := range entries {
		if bad := i > 0 && i < 5; bad != (e.Unreadable != "") || bad && e.AuditEvent != (space.AuditEvent{}) || e.Seq != uint64(i+1) || e.Stored.IsZero() {
			t.Errorf("record %d = %+v", i+1, e)
		}
	}
	if !strings.Contains(entries[3].Unreadable, "version 2") || !strings.Contains(entries[4].Unreadable, "subject") {
		t.Errorf("unreadable: %q, %q, want the version and the subject named", entries[3].Unreadable, entries[4].Unreadable)
	}
}

func TestAuditRecordsCannotBeTakenOut(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	if err := space.NewAudit(js, lab).Append(ctx, event()); err != nil {
		t.Fatal(err)
	}
	st := must(js.Stream(ctx, wire.AuditStream(lab)))(t)
	if st.DeleteMsg(ctx, 1) == nil || st.SecureDeleteMsg(ctx, 1) == nil || st.Purge(ctx) == nil {
		t.Error("an audit record could be taken out")
	}
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"delete": func(c *jetstream.StreamConfig) { c.DenyDelete = false },
		"purge":  func(c *jetstream.StreamConfig) { c.DenyPurge = false },
	} {
		c := st.CachedInfo().Config
		change(&c)
		if _, err := js.UpdateStream(ctx, c); err == nil {
			t.Errorf("%s could be allowed again", name)
		}
	}
	if _, err := js.Conn().RequestWithContext(ctx, "$JS.API.DIRECT.GET.AUDIT_lab", []byte(`{"seq":1}`)); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("direct get of a record = %v, want no responders", err)
	}
	for _, subject := range []string{"$JS.EVENT.AUDIT_lab.local.ada.revoke", "$JS.EVENT.AUDIT_lab.x"} {
		if _, err := js.Publish(ctx, subject, nil, jetstream.WithRetryAttempts(0)); !errors.Is(err, jetstream.ErrNoStreamResponse) {
			t.Errorf("publish on %s = %v, want no stream", subject, err)
		}
	}
}

// The age of messages is not that of the records.
func TestAuditAgeIsItsOwn(t *testing.T) {
	t.Parallel()
	for _, c := range space.Plan(lab, &space.Options{MaxAge: time.Hour, Sizes: space.Sizes{Audit: 1 << 20}}) {
		if c.Name == wire.AuditStream(lab) && (c.MaxAge != 90*24*time.Hour || c.MaxBytes != 1<<20) {
			t.Errorf("%s keeps %s and %d bytes", c.Name, c.MaxAge, c.MaxBytes)
		}
	}
}

// A space that was made before there was an audit stream gets one, and nothing else of it changes.
func TestASpaceWithoutAnAuditStreamGetsOne(t *testing.T) {
	t.Parallel()
	js := connect(t, broker(t))
	ctx := ctxFor(t)
	before := map[string]jetstream.StreamConfig{}
	for _, c := range space.Plan(lab, nil) {
		if c.Name != wire.AuditStream(lab) {
			before[c.Name] = must(js.CreateStream(ctx, c))(t).CachedInfo().Config
		}
	}
	must(js.Publish(ctx, "$JS.EVENT.cotal_channels_lab.=defaults", []byte(`{"deliveryClass":"live"}`)))(t)
	drifts := must(space.Verify(ctx, js, lab, nil))(t)
	if want := []string{"stream AUDIT_lab: want present, have missing"}; !slices.Equal(texts(drifts), want) {
		t.Errorf("Verify = %q, want %q", texts(drifts), want)
	}
	for range 2 {
		if err := space.Ensure(ctx, js, lab, nil); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range before {
		if diff := cmp.Diff(want, must(js.Stream(ctx, name))(t).CachedInfo().Config); diff != "" {
			t.Errorf("%s changed:\n%s", name, diff)
		}
	}
	if got := len(streamNames(t, js)); got != space.Streams {
		t.Errorf("%d streams, want %d", got, space.Streams)
	}
	if err := space.NewAudit(js, lab).Append(ctx, event()); err != nil {
		t.Error(err)
	}
}

func texts(drifts []space.Drift) []string {
	out := make([]string, len(drifts))
	for i, d := range drifts {
		out[i] = fmt.Sprint(d)
	}
	return out
}
