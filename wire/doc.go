// Package wire is the contract of a space as Go types: who speaks (principals and lifecycles), where (subjects), what
// (messages, presence, channel configuration, requests and replies) and how it is refused (errors). SPEC.md states the
// same contract in words; the vectors under testdata/vectors state it as data any implementation can run.
//
// # Start
//
// A sender builds a subject and a payload:
//
//	subj, err := wire.ChannelSubject(space, me, "team.backend")
//	m := &wire.Message{ID: wire.NewID(), TS: now.UnixMilli(), Space: space, From: ref, Channel: "team.backend",
//		Parts: []wire.Part{wire.Text("hello")}}
//	payload, err := m.AppendJSON(nil)
//
// A receiver hands both to Receive, and never trusts the subscription a message arrived on: a broker can be made to
// deliver a message whose subject the subscription does not match.
//
//	sub, m, err := wire.Receive(msg.Subject, msg.Data)
//
// # What it promises
//
//   - Builders validate every token. No input becomes a wildcard, an extra token or another space.
//   - Parsers accept exactly what builders produce. What a parser accepts survives being built again.
//   - Decoders take a size limit and refuse invalid UTF-8, lone surrogates, duplicate keys at any depth, keys that differ
//     from a known field only in case, nesting beyond a limit, and anything after the value. Unknown fields are ignored;
//     a part of an unknown reverse-DNS kind is kept byte for byte.
//   - Every refusal is an *Error with a code of the closed catalog, safe to print and to log.
//
// # Who vouches
//
// Two sources fill these types, and each field says which. The broker vouches for a subject: it pins the sender tokens to
// the credential that published. The sender claims everything in a payload. CheckSender ties the claim to the fact.
//
// # What it does not
//
// It opens no connection, knows no credential and keeps no state besides a cache of struct layouts. It says whether
// something is well formed, never whether it is permitted.
//
// # Concurrency
//
// All functions are safe for concurrent use. Values are plain data: share them only while nobody writes.
package wire
