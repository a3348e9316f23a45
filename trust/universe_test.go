package trust_test

import (
	"slices"

	"github.com/cotal-go/cotal/wire"
)

// nonce stands for a request nonce in the probes.
const nonce = "nnnnnnnnnnnnnnnnnnnnnn"

// watched is the account of the system-watcher.
const watched = "AB2GQZJAMFRWG33VNZ2CA5DIMF2CAYLEMEQGS4ZAORXWYZBAN5TC5CXB"

// universe is everything that is tried: what some profile may do, what is next to it, and every verb of JetStream on every
// stream. The holder is ada in space main.
func universe() []probe {
	var all []probe
	all = append(all, messageProbes()...)
	all = append(all, railProbes()...)
	all = append(all, bucketProbes()...)
	all = append(all, streamProbes()...)
	all = append(all, systemProbes()...)
	all = append(all, subscriptionProbes()...)
	seen := map[probe]bool{}
	return slices.DeleteFunc(all, func(p probe) bool {
		was := seen[p]
		seen[p] = true
		return was
	})
}

func pubs(prefix string, subjects ...string) []probe { return probes("pub", prefix, subjects) }
func subs(prefix string, subjects ...string) []probe { return probes("sub", prefix, subjects) }

func probes(verb, prefix string, subjects []string) []probe {
	out := make([]probe, len(subjects))
	for i, s := range subjects {
		out[i] = probe{verb, prefix + s}
	}
	return out
}

func messageProbes() []probe {
	return slices.Concat(
		pubs("cotal.main.chat.", "local.ada.general", "local.ada.log.build", "local.ada.log.build.deep", "local.ada.log", "local.ada.secret",
			"local.ada.team.x", "local.bob.general", "u_x.ada.general", "local.ada"),
		pubs("cotal.main.inst.", "local.bob.local.ada", "local.ada.local.bob", "local.bob.local.bob", "local.bob.local.ada.x"),
		pubs("cotal.main.svc.", "reviewer.local.ada", "writer.local.ada", "reviewer.local.bob"),
		pubs("cotal.main.", "live.local.ada.general", "dlv.local.ada."+string(adaUID), "dlv.local.bob."+string(bobUID), "ctl.delivery.local.ada", "x"),
		pubs("cotal.other.", "chat.local.ada.general", "inst.local.bob.local.ada", "svc.reviewer.local.ada"),
		pubs("", "x", "_INBOX.x", "_INBOX_"+string(adaUID)+".x", "_INBOX_"+string(bobUID)+".x", "$SRV.PING", "$JS.EVENT.ADVISORY.API"),
		pubs("$JS.EVENT.DLV_main.", "local.ada."+string(adaUID), "local.bob."+string(bobUID), "x", "local.ada."+string(adaUID)+".x"),
		pubs("$JS.EVENT.DEAD_main.", "requeue.1", "requeue.1.x", "x"),
		pubs("$JS.EVENT.AUDIT_main.", "local.ada.revoke.ok", "-.-.connect.denied", "local.ada.revoke", "local.ada.revoke.ok.x"),
		pubs("$JS.EVENT.AUDIT_other.", "local.ada.revoke.ok"),
		pubs("$JS.EVENT.ADVISORY.CONSUMER.", "MAX_DELIVERIES.DM_main.dm_local-ada-"+string(adaUID), "MAX_DELIVERIES.DM_main.dm_local-bob-"+string(bobUID),
			"MSG_TERMINATED.DM_main.dm_local-ada-"+string(adaUID), "MAX_DELIVERIES.TASK_main.svc_reviewer", "MSG_TERMINATED.TASK_main.svc_reviewer",
			"MAX_DELIVERIES.CHAT_main.x"),
	)
}

func railProbes() []probe {
	mine := ".local.ada." + string(adaUID) + "." + nonce
	foreign := []string{
		".local.bob." + string(bobUID) + "." + nonce, ".local.ada." + string(bobUID) + "." + nonce, ".u_x.ada." + string(adaUID) + "." + nonce,
	}
	var out []probe
	for _, c := range []string{
		wire.CommandRoster, wire.CommandChannels, wire.CommandHistory, wire.CommandChannelSet, wire.CommandEnrol, wire.CommandJoin, wire.CommandLeave,
		wire.CommandMemberships, wire.CommandPull, wire.CommandAck, wire.CommandReceipt, wire.CommandReach, "purge", wire.CommandTrace, wire.CommandInbox, "other", "describe", "health",
	} {
		out = append(out, pubs("cotal.main.ep.one.delivery."+c, mine)...)
	}
	for _, caller := range foreign {
		out = append(out, pubs("cotal.main.ep.one.delivery.", "history"+caller, "describe"+caller)...)
	}
	self, owner, anyOf, exact := ".self", ".owner.local", ".any.local", ".exact.local.bob."+string(bobUID)
	for _, c := range []string{"stop", "spawn", "other"} {
		for _, mode := range []string{"", self, owner, anyOf, exact} {
			out = append(out, pubs("cotal.main.ep.one.manager."+c, mode+mine)...)
		}
	}
	out = append(out, managerProbes(mine, foreign, self, owner, anyOf, exact)...)
	out = append(out, authorityProbes(mine, foreign)...)
	for _, e := range []string{"auth", "com_acme_deploy"} {
		out = append(out, pubs("cotal.main.ep.one."+e+".", "describe"+mine, "health"+mine, "run"+mine, "run"+anyOf+mine, "describe"+foreign[0], "health"+foreign[0])...)
	}
	for _, e := range []string{"delivery", "manager"} {
		out = append(out, pubs("cotal.main.ep.all."+e+".", "health"+mine, "describe"+mine, "stop"+anyOf+mine, "health"+foreign[0])...)
		out = append(out, pubs("cotal.main.ep.inst."+e+".i1.", "health"+mine, "describe"+mine, "stop"+mine)...)
		out = append(out, pubs("cotal.main.", "ep.reply."+e+".i1.e1"+mine, "ep.reply."+e+".i1.e1"+foreign[0], "epe."+e+".i1.e1.roster", "epe."+e+".i1.e1.peer",
			"ep.reply."+e+".i2.e1"+foreign[0], "epe."+e+".i2.e1.peer", "epe."+e+".i2.e1.agents", "eps."+e+".s1.e1.in", "eps."+e+".s1.e1.out")...)
	}
	return append(out, pubs("cotal.other.ep.one.delivery.history", mine)...)
}

// managerProbes try every command of a supervisor in every mode on every rail, and the bytes of sessions.
func managerProbes(mine string, foreign []string, modes ...string) []probe {
	var out []probe
	rails := []string{"ep.one.manager.", "ep.all.manager.", "ep.inst.manager.i1."}
	modes = append([]string{"", ".owner.u_x"}, modes...)
	for _, rail := range rails {
		for _, c := range append(wire.ManagerCommands(), wire.CommandInput, wire.CommandDrain, "other") {
			for _, mode := range modes {
				out = append(out, pubs("cotal.main."+rail+c, mode+mine)...)
			}
		}
		for _, caller := range foreign {
			out = append(out, pubs("cotal.main."+rail, "spawn"+caller, "agents"+caller, "stop.self"+caller, "stop.any.local"+caller)...)
		}
	}
	for _, uid := range []string{string(adaUID), string(bobUID)} {
		out = append(out, pubs("cotal.main.eps.", "manager.s1."+uid+".in", "manager.s1."+uid+".out", "manager."+uid+".s1.in", "com_acme_deploy.s1."+uid+".in")...)
		out = append(out, sessionProbes(uid)...)
	}
	return out
}

// sessionProbes try the sessions of a life that were asked for in a mode.
func sessionProbes(uid string) []probe {
	var out []probe
	for _, mode := range []string{"owner", "any", "self"} {
		out = append(out, pubs("cotal.main.epm."+mode+".", "manager.s1."+uid+".in", "manager.s1."+uid+".out", "manager."+uid+".s1.in", "com_acme_deploy.s1."+uid+".in")...)
		out = append(out, subs("cotal.main.epm."+mode+".", "manager.*."+uid+".out", "manager.*."+uid+".in", "manager.s1."+uid+".out", "manager.*."+uid+".*", "*.*."+uid+".out")...)
	}
	return append(out, subs("cotal.main.epm.", "*.manager.*."+uid+".out", "*.manager.*."+uid+".in")...)
}

// authorityProbes try the commands by which a supervisor asks for grants.
func authorityProbes(mine string, foreign []string) []probe {
	var out []probe
	for _, c := range []string{
		wire.CommandAgentGrant, wire.CommandAgentStart, wire.CommandAgentRenew, wire.CommandAgentStop, wire.CommandAgentRetire, wire.CommandAgentGrants, "agent-other",
	} {
		out = append(out, pubs("cotal.main.ep.one.auth."+c, mine, foreign[0], foreign[1], ".self"+mine, ".owner.local"+mine, ".any.local"+mine)...)
		out = append(out, pubs("cotal.main.ep.all.auth."+c, mine, ".any.local"+mine)...)
		out = append(out, pubs("cotal.main.ep.inst.auth.i1."+c, mine, ".any.local"+mine)...)
	}
	return append(out, pubs("cotal.main.", "ep.all.auth.health"+mine, "ep.reply.auth.i1.e1"+mine, "ep.reply.auth.i1.e1"+foreign[0], "epe.auth.i1.e1.x")...)
}

func bucketProbes() []probe {
	var out []probe
	for _, b := range []struct {
		bucket string
		keys   []string
	}{
		{"cotal_authority_main", []string{"grant.local.ada", "uid." + string(adaUID), "lease.sweep", "fence.sweep"}},
		{"cotal_channels_main", []string{"general", wire.DefaultsKey}},
		{"cotal_channels_other", []string{wire.DefaultsKey}},
		{"cotal_cursors_main", []string{"local.ada." + string(adaUID) + ".k", "local.ada." + string(adaUID) + ".=mentions", "=mentions", "=cleared.k"}},
		{"cotal_members_main", []string{"local.ada." + string(adaUID) + ".k"}},
		{"cotal_presence_main", []string{"local.ada", "local.bob", "u_x.ada", "x"}},
		{"cotal_presence_other", []string{"local.ada"}},
		{"other", []string{"local.ada"}},
	} {
		out = append(out, pubs(wire.RecordPrefix(b.bucket), b.keys...)...)
		out = append(out, pubs("$KV."+b.bucket+".", b.keys...)...)
	}
	return append(out, pubs("$O.files.C.", "x")...)
}

// streamNames are all streams of the space and one of another.
var streamNames = []string{
	"CHAT_main", "DM_main", "TASK_main", "DLV_main", "DEAD_main", "AUDIT_main", "KV_cotal_presence_main", "KV_cotal_channels_main", "KV_cotal_members_main",
	"KV_cotal_cursors_main", "KV_cotal_authority_main", "CHAT_other", "OTHER",
}

func streamProbes() []probe {
	out := pubs("$JS.API.", "INFO", "STREAM.NAMES", "STREAM.LIST", "META.LEADER.STEPDOWN", "SERVER.REMOVE", "ACCOUNT.PURGE.x",
		"ACCOUNT.STREAM.MOVE.x.y", "STREAM.TEMPLATE.NAMES", "x")
	for _, s := range streamNames {
		for _, verb := range []string{
			"STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.PURGE", "STREAM.INFO", "STREAM.MSG.GET", "STREAM.MSG.DELETE",
			"STREAM.SNAPSHOT", "STREAM.RESTORE", "STREAM.LEADER.STEPDOWN", "STREAM.PEER.REMOVE", "CONSUMER.CREATE", "CONSUMER.LIST",
			"CONSUMER.NAMES", "DIRECT.GET",
		} {
			out = append(out, pubs("$JS.API."+verb+".", s)...)
		}
		out = append(out, pubs("$JS.", "API.DIRECT.GET."+s+".some.subject", "API.CONSUMER.CREATE."+s+".x.some.filter", "SNAPSHOT.RESTORE."+s+".x", "SNAPSHOT.ACK."+s+".x", "FC."+s+".x.y")...)
		for _, c := range consumers(s) {
			for _, verb := range []string{"CREATE", "DURABLE.CREATE", "INFO", "DELETE", "MSG.NEXT", "PAUSE", "UNPIN", "LEADER.STEPDOWN"} {
				out = append(out, pubs("$JS.API.CONSUMER."+verb+".", s+"."+c)...)
			}
			out = append(out, pubs("$JS.ACK.", s+"."+c+".1.1.1.1.1")...)
		}
	}
	return out
}

// consumers names the durables that are tried on a stream: the holder's own, another's, and a made-up one.
func consumers(stream string) []string {
	own, foreign := "local-ada-"+string(adaUID), "local-bob-"+string(bobUID)
	switch stream {
	case "DM_main":
		return []string{"dm_" + own, "dm_" + foreign, "x"}
	case "DLV_main":
		return []string{"dlv_" + own, "dlv_" + foreign, "x"}
	case "TASK_main":
		return []string{"svc_reviewer", "svc_writer", "x"}
	}
	return []string{"x"}
}

func systemProbes() []probe {
	return slices.Concat(
		pubs("$SYS.REQ.", "CLAIMS.UPDATE", "CLAIMS.DELETE", "CLAIMS.LIST", "CLAIMS.PACK", "ACCOUNT.PING.STATZ", "USER.INFO",
			"ACCOUNT."+watched+".CLAIMS.LOOKUP", "ACCOUNT."+watched+".CONNZ", "ACCOUNT."+watched+".SUBSZ", "ACCOUNT."+watched+".JSZ",
			"ACCOUNT.AX.CLAIMS.LOOKUP", "ACCOUNT.AX.CLAIMS.UPDATE", "ACCOUNT.AX.CONNZ", "ACCOUNT.AX.SUBSZ", "ACCOUNT.AX.INFO", "ACCOUNT.AX.JSZ",
			"SERVER.PING", "SERVER.PING.CONNZ", "SERVER.PING.VARZ", "SERVER.PING.JSZ", "SERVER.PING.IDZ", "SERVER.NX.CONNZ", "SERVER.NX.VARZ",
			"SERVER.NX.KICK", "SERVER.NX.LDM", "SERVER.NX.RELOAD", "SERVER.NX.PROFILEZ"),
		pubs("cotal.node.", "status", "stop", "stop.x"),
		pubs("$SYS.", "ACCOUNT.AX.CONNECT", "ACCOUNT."+watched+".CONNECT", "ACCOUNT."+watched+".DISCONNECT", "SERVER.NX.CLIENT.AUTH.ERR"),
	)
}

func subscriptionProbes() []probe {
	mine, foreign := "local.ada."+string(adaUID), "local.bob."+string(bobUID)
	return slices.Concat(
		subs("", ">", "*", "cotal.>", "cotal.main.>", "_INBOX.>", "_INBOX_"+string(adaUID)+".>", "_INBOX_"+string(adaUID)+".x",
			"_INBOX_"+string(bobUID)+".>", "$SRV.>", "x"),
		subs("cotal.main.live.", ">", "*.*.general", "*.*.team.>", "*.*.team.a", "*.*.team.a.b", "*.*.team", "*.*.secret", "*.*.>", "*.*.*",
			"local.bob.general", "local.bob.>"),
		subs("cotal.main.", "chat.>", "chat.*.*.general", "chat.local.ada.>", "inst.>", "inst.local.ada.>", "inst.local.bob.>", "svc.>", "svc.reviewer.>",
			"dlv.>", "dlv."+mine, "dlv."+foreign, "dlv.local.ada.*", "dlv.local.ada.>", "dlv.*.*.*", "dlv."+mine+".x", "ep.>", "ep.one.>", "ep.one.delivery.>", "ep.one.delivery.history.>", "ep.one.manager.>", "ep.all.>", "ep.all.delivery.>",
			"ep.inst.>", "ep.inst.delivery.>", "ep.reply.>", "ep.reply.*.*.*."+mine+".*", "ep.reply.*.*.*."+foreign+".*", "ep.reply.*.*.*.local.ada.>",
			"epe.>", "epe.delivery.*.*.roster", "epe.delivery.*.*.membership", "epe.delivery.*.*.receipt.local.ada", "epe.delivery.*.*.receipt.local.bob",
			"epe.delivery.*.*.receipt.*.*", "epe.delivery.*.*.receipt.>", "epe.delivery.*.*.receipt.local.ada.x", "epe.delivery.>", "epe.manager.*.*.status",
			"epe.manager.*.*.goal."+mine+".>", "epe.manager.*.*.goal."+foreign+".>", "epe.manager.*.*.session."+mine+".>", "eps.>", "eps.manager.s1.e1.out", "eps.manager.*.*.out", "eps.manager.*.*.in", "eps.manager.>",
			"eps.manager.*.*.*", "eps.manager.*."+string(adaUID)+".out", "eps.manager.*."+string(adaUID)+".in", "eps.manager.*."+string(adaUID)+".>",
			"eps.manager.*."+string(bobUID)+".out", "eps.manager.*."+string(bobUID)+".in", "eps.manager.s1."+string(adaUID)+".out", "eps.manager.s1."+string(bobUID)+".out",
			"eps.*.*."+string(adaUID)+".out", "epm.>", "epm.any.>", "epm.any.manager.*.*.out", "epm.any.manager.*.*.in", "epm.*.*.*.*.out", "epm.*.manager.*.*.in",
			"epe.manager.*.*.peer", "epe.manager.*.*.agents", "epe.manager.>", "epe.auth.>", "ep.all.manager.>", "ep.inst.manager.>", "ep.inst.manager.i1.>", "ep.inst.manager.i2.>", "ep.inst.manager.*.>",
			"ep.one.auth.>", "ep.all.auth.>", "ep.inst.auth.>", "ep.one.auth.agent-grant.>", "ep.reply.manager.>", "ep.reply.auth.>"),
		subs("cotal.other.", "live.>", "live.*.*.general", "ep.reply.*.*.*."+mine+".*"),
		subs("$KV.", ">", "cotal_presence_main.>", "cotal_presence_main.*.*", "cotal_presence_main.local.ada", "cotal_channels_main.>"),
		subs("$JS.", ">", "API.>", "ACK.>", "ACK.DM_main.>", "EVENT.>", "EVENT.ADVISORY.>", "EVENT.cotal_authority_main.>", "EVENT.cotal_channels_main.>",
			"EVENT.cotal_members_main.>", "EVENT.cotal_cursors_main.>", "EVENT.DLV_main.>", "EVENT.cotal_authority_main.grant.>", "EVENT.cotal_authority_main.uid.>",
			"EVENT.cotal_authority_main.lease.>", "EVENT.AUDIT_main.>", "EVENT.AUDIT_main.*.*.*.*", "EVENT.AUDIT_main.local.ada.*.*",
			"EVENT.ADVISORY.CONSUMER.>", "EVENT.ADVISORY.CONSUMER.*.DM_main.*", "EVENT.ADVISORY.CONSUMER.*.TASK_main.*",
			"EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.DM_main.dm_local-ada-"+string(adaUID), "FC.>"),
		subs("$SYS.", ">", "REQ.>", "REQ.USER.AUTH", "ACCOUNT.*.CONNECT", "ACCOUNT.*.DISCONNECT", "ACCOUNT.AX.CONNECT", "ACCOUNT.AX.DISCONNECT", "ACCOUNT.>",
			"ACCOUNT."+watched+".CONNECT", "ACCOUNT."+watched+".DISCONNECT", "ACCOUNT."+watched+".*", "ACCOUNT."+watched+".>", "SERVER.*.CLIENT.AUTH.ERR"),
		subs("cotal.node.", "*", "status", ">"),
	)
}
