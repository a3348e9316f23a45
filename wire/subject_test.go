package wire_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/wire"
)

const (
	uidA  = wire.UID("kak6nvrsu3s7esjytwyvi3devv")
	nonce = "3baqpwfxx5lx3r3kzzfoki3zr6"
)

var (
	ada = wire.Principal{Owner: "local", Actor: "ada"}
	bob = wire.Principal{Owner: "u_g5mclrofwa6pirb3p4yeigemze", Actor: "bob"}
)

// must turns a builder's two results into one.
func must(tb testing.TB) func(s string, err error) string {
	return func(s string, err error) string {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return s
	}
}

func TestBuildAndParseSubject(t *testing.T) {
	do := must(t)
	for _, c := range []struct {
		built string
		want  string
		sub   wire.Subject
	}{
		{do(wire.ChannelSubject("main", ada, "a.b")), "cotal.main.chat.local.ada.a.b",
			wire.Subject{Kind: wire.KindChannel, Space: "main", Sender: ada, Channel: "a.b"}},
		{do(wire.LiveSubject("main", ada, "a.b")), "cotal.main.live.local.ada.a.b",
			wire.Subject{Kind: wire.KindLive, Space: "main", Sender: ada, Channel: "a.b"}},
		{do(wire.DirectSubject("main", bob, ada)), "cotal.main.inst.u_g5mclrofwa6pirb3p4yeigemze.bob.local.ada",
			wire.Subject{Kind: wire.KindDirect, Space: "main", Sender: ada, To: bob}},
		{do(wire.RoleSubject("main", "reviewer", ada)), "cotal.main.svc.reviewer.local.ada",
			wire.Subject{Kind: wire.KindRole, Space: "main", Sender: ada, Role: "reviewer"}},
		{do(wire.MentionSubject("main", wire.Lifecycle{Principal: ada, UID: uidA})), "cotal.main.dlv.local.ada." + string(uidA),
			wire.Subject{Kind: wire.KindMention, Space: "main", To: ada, UID: uidA}},
	} {
		if c.built != c.want {
			t.Errorf("built %q, want %q", c.built, c.want)
		}
		sub, err := wire.ParseSubject(c.built)
		if err != nil {
			t.Errorf("ParseSubject(%q): %v", c.built, err)
		}
		if diff := cmp.Diff(c.sub, sub); diff != "" {
			t.Errorf("ParseSubject(%q) (-want +got):\n%s", c.built, diff)
		}
		if err := sub.Surface(); err != nil {
			t.Errorf("Surface(%q): %v", c.built, err)
		}
		if got := wire.KindOf(c.built); got != c.sub.Kind {
			t.Errorf("KindOf(%q) = %v, want %v", c.built, got, c.sub.Kind)
		}
	}
}

func TestFilters(t *testing.T) {
	do := must(t)
	l := wire.Lifecycle{Principal: ada, UID: uidA}
	for _, c := range []struct{ got, want string }{
		{do(wire.LiveFilter("main", "team.>")), "cotal.main.live.*.*.team.>"},
		{do(wire.ChannelFilter("main", "general")), "cotal.main.chat.*.*.general"},
		{do(wire.DirectFilter("main", ada)), "cotal.main.inst.local.ada.>"},
		{do(wire.RoleFilter("main", "reviewer")), "cotal.main.svc.reviewer.>"},
		{do(wire.ReplyFilter("main", l)), "cotal.main.ep.reply.*.*.*.local.ada." + string(uidA) + ".*"},
		{do(wire.ServeFilter("main", wire.RailOne, "com.acme.x", "")), "cotal.main.ep.one.com_acme_x.>"},
		{do(wire.ServeFilter("main", wire.RailAll, "delivery", "")), "cotal.main.ep.all.delivery.>"},
		{do(wire.ServeFilter("main", wire.RailInst, "delivery", "i1")), "cotal.main.ep.inst.delivery.i1.>"},
		{do(wire.EventFilter("main", "delivery", "roster")), "cotal.main.epe.delivery.*.*.roster"},
		{do(wire.PresenceFilter("main")), "$KV.cotal_presence_main.*.*"},
		{do(wire.PresenceSubject("main", ada)), "$KV.cotal_presence_main.local.ada"},
		{wire.StreamSubjects("main", wire.KindChannel), "cotal.main.chat.>"},
		{wire.StreamSubjects("main", wire.KindLive), "cotal.main.live.>"},
		{wire.StreamSubjects("main", wire.KindDirect), "cotal.main.inst.>"},
		{wire.StreamSubjects("main", wire.KindRole), "cotal.main.svc.>"},
		{wire.StreamSubjects("main", wire.KindMention), "cotal.main.dlv.>"},
		{wire.StreamSubjects("main", wire.KindRequest), ""},
		{wire.Space("main").Prefix(), "cotal.main"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestNamesOfBrokerObjects(t *testing.T) {
	l := wire.Lifecycle{Principal: ada, UID: uidA}
	for _, c := range []struct{ got, want string }{
		{wire.ChatStream("main"), "CHAT_main"}, {wire.DirectStream("main"), "DM_main"},
		{wire.RoleStream("main"), "TASK_main"}, {wire.MentionStream("main"), "DLV_main"},
		{wire.PresenceBucket("main"), "cotal_presence_main"}, {wire.ChannelsBucket("main"), "cotal_channels_main"},
		{wire.MembersBucket("main"), "cotal_members_main"}, {wire.CursorsBucket("main"), "cotal_cursors_main"},
		{wire.AuthorityBucket("main"), "cotal_authority_main"}, {wire.AuditStream("main"), "AUDIT_main"},
		{wire.AuditRecords("main"), "$JS.EVENT.AUDIT_main."},
		{wire.DirectDurable(l), "dm_local-ada-" + string(uidA)},
		{wire.RoleDurable("reviewer"), "svc_reviewer"}, {wire.InboxPrefix("abc"), "_INBOX_abc"},
		{wire.QueueGroup("com.acme.x"), "com_acme_x"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// No builder lets an input become a wildcard, an extra token or another space.
func TestBuildersRefuse(t *testing.T) {
	life := func(p wire.Principal, u wire.UID) wire.Lifecycle { return wire.Lifecycle{Principal: p, UID: u} }
	builders := map[string]func(evil string) (string, error){
		"channel space": func(e string) (string, error) { return wire.ChannelSubject(wire.Space(e), ada, "general") },
		"channel owner": func(e string) (string, error) {
			return wire.ChannelSubject("main", wire.Principal{Owner: e, Actor: "ada"}, "general")
		},
		"channel actor": func(e string) (string, error) {
			return wire.ChannelSubject("main", wire.Principal{Owner: "local", Actor: e}, "general")
		},
		"channel":      func(e string) (string, error) { return wire.ChannelSubject("main", ada, e) },
		"live channel": func(e string) (string, error) { return wire.LiveSubject("main", ada, e) },
		"direct to": func(e string) (string, error) {
			return wire.DirectSubject("main", wire.Principal{Owner: "local", Actor: e}, ada)
		},
		"direct from": func(e string) (string, error) {
			return wire.DirectSubject("main", ada, wire.Principal{Owner: "local", Actor: e})
		},
		"direct filter": func(e string) (string, error) {
			return wire.DirectFilter("main", wire.Principal{Owner: "local", Actor: e})
		},
		"role":        func(e string) (string, error) { return wire.RoleSubject("main", e, ada) },
		"role filter": func(e string) (string, error) { return wire.RoleFilter("main", e) },
		"mention uid": func(e string) (string, error) { return wire.MentionSubject("main", life(ada, wire.UID(e))) },
		"presence": func(e string) (string, error) {
			return wire.PresenceSubject("main", wire.Principal{Owner: "local", Actor: e})
		},
		"presence filter": func(e string) (string, error) { return wire.PresenceFilter(wire.Space(e)) },
		"reply filter":    func(e string) (string, error) { return wire.ReplyFilter("main", life(ada, wire.UID(e))) },
		"serve endpoint":  func(e string) (string, error) { return wire.ServeFilter("main", wire.RailOne, e, "") },
		"serve instance":  func(e string) (string, error) { return wire.ServeFilter("main", wire.RailInst, "delivery", e) },
		"event endpoint":  func(e string) (string, error) { return wire.EventFilter("main", e, "roster") },
	}
	for name, build := range builders {
		for _, evil := range []string{"", "*", ">", "a.*", "a.>", "a..b", ".a", "a.", "a b", "a\nb", "é", "\xff", "a\x00"} {
			if got, err := build(evil); !errors.Is(err, wire.ErrBadRequest) || got != "" {
				t.Errorf("%s with %q = %q, %v; want bad-request", name, evil, got, err)
			}
		}
	}
	if _, err := wire.LiveFilter("main", "a.>.b"); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("LiveFilter with a tail in the middle: %v, want bad-request", err)
	}
	stranger := wire.Principal{Owner: "alice", Actor: "ada"}
	if _, err := wire.ChannelSubject("main", stranger, "general"); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("ChannelSubject of an unknown owner: %v, want bad-request: nobody would surface it", err)
	}
}

func TestKindOf(t *testing.T) {
	for s, want := range map[string]wire.Kind{
		"": 0, "cotal": 0, "cotal.main": 0, "cotal..chat": 0, "other.main.chat.a": 0, "cotal.main.ctl.x": 0, "_INBOX.x": 0,
		"cotal.main.ep.one.x": wire.KindRequest, "cotal.main.ep.all.x": wire.KindRequest, "cotal.main.ep.inst.x": wire.KindRequest,
		"cotal.main.ep.reply.x": wire.KindReply, "cotal.main.ep.x": 0, "cotal.main.ep": 0, "cotal.main.epe.x": wire.KindEvent, "cotal.main.eps.x": wire.KindSession,
	} {
		if got := wire.KindOf(s); got != want {
			t.Errorf("KindOf(%q) = %v, want %v", s, got, want)
		}
	}
	if got := wire.Kind(99).String(); got != "unknown" {
		t.Errorf("Kind(99) = %q", got)
	}
}

func TestRails(t *testing.T) {
	caller := wire.Lifecycle{Principal: ada, UID: uidA}
	tail := ".local.ada." + string(uidA) + "." + nonce
	for _, c := range []struct {
		r    wire.RequestSubject
		want string
	}{
		{wire.RequestSubject{Rail: wire.RailOne, Endpoint: "delivery", Command: "history"}, "cotal.main.ep.one.delivery.history" + tail},
		{wire.RequestSubject{Rail: wire.RailAll, Endpoint: "com.acme.x", Command: "health"}, "cotal.main.ep.all.com_acme_x.health" + tail},
		{wire.RequestSubject{Rail: wire.RailInst, Endpoint: "manager", Instance: "i1", Command: "stop", Mode: wire.ModeSelf},
			"cotal.main.ep.inst.manager.i1.stop.self" + tail},
		{wire.RequestSubject{Rail: wire.RailOne, Endpoint: "manager", Command: "stop", Mode: wire.ModeOwner, Target: []string{"local"}},
			"cotal.main.ep.one.manager.stop.owner.local" + tail},
		{wire.RequestSubject{Rail: wire.RailOne, Endpoint: "manager", Command: "stop", Mode: wire.ModeAny, Target: []string{bob.Owner}},
			"cotal.main.ep.one.manager.stop.any." + bob.Owner + tail},
		{wire.RequestSubject{Rail: wire.RailOne, Endpoint: "manager", Command: "stop", Mode: wire.ModeExact, Target: []string{"local", "bob", string(uidA)}},
			"cotal.main.ep.one.manager.stop.exact.local.bob." + string(uidA) + tail},
	} {
		c.r.Space, c.r.Caller, c.r.Nonce = "main", caller, nonce
		got, err := c.r.Subject()
		if err != nil || got != c.want {
			t.Errorf("Subject = %q, %v; want %q", got, err, c.want)
			continue
		}
		parsed, err := wire.ParseRequestSubject(got)
		if diff := cmp.Diff(c.r, parsed); err != nil || diff != "" {
			t.Errorf("ParseRequestSubject(%q): %v (-want +got):\n%s", got, err, diff)
		}
		reply := parsed.Reply("i1", "e1")
		text, err := reply.Subject()
		if want := "cotal.main.ep.reply." + wire.EndpointToken(c.r.Endpoint) + ".i1.e1" + tail; err != nil || text != want {
			t.Errorf("Reply.Subject = %q, %v; want %q", text, err, want)
		}
		back, err := wire.ParseReplySubject(text)
		if diff := cmp.Diff(reply, back); err != nil || diff != "" {
			t.Errorf("ParseReplySubject(%q): %v (-want +got):\n%s", text, err, diff)
		}
	}
}

func TestRailsRefuse(t *testing.T) {
	good := wire.RequestSubject{Space: "main", Rail: wire.RailOne, Endpoint: "delivery", Command: "history",
		Caller: wire.Lifecycle{Principal: ada, UID: uidA}, Nonce: nonce}
	for name, spoil := range map[string]func(*wire.RequestSubject){
		"space":                  func(r *wire.RequestSubject) { r.Space = "a.b" },
		"no rail":                func(r *wire.RequestSubject) { r.Rail = "" },
		"reply rail":             func(r *wire.RequestSubject) { r.Rail = "reply" },
		"token form of endpoint": func(r *wire.RequestSubject) { r.Endpoint = "com_acme" },
		"wildcard command":       func(r *wire.RequestSubject) { r.Command = "*" },
		"instance on one":        func(r *wire.RequestSubject) { r.Instance = "i1" },
		"no instance on inst":    func(r *wire.RequestSubject) { r.Rail = wire.RailInst },
		"unknown mode":           func(r *wire.RequestSubject) { r.Mode = "child" },
		"target without mode":    func(r *wire.RequestSubject) { r.Target = []string{"local"} },
		"self with target":       func(r *wire.RequestSubject) { r.Mode, r.Target = wire.ModeSelf, []string{"local"} },
		"owner without target":   func(r *wire.RequestSubject) { r.Mode = wire.ModeOwner },
		"any of wildcard":        func(r *wire.RequestSubject) { r.Mode, r.Target = wire.ModeAny, []string{"*"} },
		"exact of bad actor":     func(r *wire.RequestSubject) { r.Mode, r.Target = wire.ModeExact, []string{"local", "*", string(uidA)} },
		"exact of bad uid":       func(r *wire.RequestSubject) { r.Mode, r.Target = wire.ModeExact, []string{"local", "bob", "x"} },
		"short nonce":            func(r *wire.RequestSubject) { r.Nonce = "short" },
		"no uid":                 func(r *wire.RequestSubject) { r.Caller.UID = "" },
		"unknown owner":          func(r *wire.RequestSubject) { r.Caller.Owner = "alice" },
		"owner named like mode":  func(r *wire.RequestSubject) { r.Caller.Owner = "self" },
	} {
		r := good
		spoil(&r)
		if got, err := r.Subject(); !errors.Is(err, wire.ErrBadRequest) || got != "" {
			t.Errorf("%s: Subject = %q, %v; want bad-request", name, got, err)
		}
	}
	r := good
	r.Mode, r.Target = wire.ModeOwner, []string{bob.Owner}
	if _, err := r.Subject(); wire.CodeOf(err) != wire.CodeTargetMismatch {
		t.Errorf("mode owner with another owner: %v, want target-mismatch", err)
	}
	if _, err := wire.ServeFilter("main", wire.RailOne, "delivery", "i1"); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("ServeFilter on one with an instance: %v, want bad-request", err)
	}
	if _, err := wire.ServeFilter("main", "reply", "delivery", ""); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("ServeFilter on the reply rail: %v, want bad-request", err)
	}
}

func TestEventAndSessionSubjects(t *testing.T) {
	e := wire.EventSubject{Space: "main", Endpoint: "com.acme.x", Instance: "i1", Epoch: "e1", Topic: "a.b"}
	s := must(t)(e.Subject())
	if s != "cotal.main.epe.com_acme_x.i1.e1.a.b" {
		t.Errorf("event subject = %q", s)
	}
	if got, err := wire.ParseEventSubject(s); err != nil || got != e {
		t.Errorf("ParseEventSubject(%q) = %+v, %v", s, got, err)
	}
	for i, mode := range []wire.Mode{wire.ModeNone, wire.ModeOwner, wire.ModeAny} {
		p := wire.SessionSubject{Space: "main", Mode: mode, Endpoint: "manager", Session: "s1", Epoch: "e1", In: i > 0}
		s := must(t)(p.Subject())
		if got, err := wire.ParseSessionSubject(s); err != nil || got != p {
			t.Errorf("ParseSessionSubject(%q) = %+v, %v", s, got, err)
		}
	}
	for _, mode := range []wire.Mode{wire.ModeSelf, wire.ModeExact, "manager", "*"} {
		p := wire.SessionSubject{Space: "main", Mode: mode, Endpoint: "manager", Session: "s1", Epoch: "e1"}
		if s, err := p.Subject(); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("session of mode %q: %q, %v, want bad-request", mode, s, err)
		}
	}
	e.Topic = "a.*"
	if _, err := e.Subject(); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("event with a wildcard topic: %v, want bad-request", err)
	}
}
