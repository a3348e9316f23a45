// Package trust is the vocabulary of who may do what: profiles and their permission templates, the identity and
// the credential of one holder, grants, and the records from which all trust is rebuilt. It is what a holder can
// check; making credentials is package mint, and a client that links only this package cannot.
//
// # The chain
//
// One operator and one system account per broker, one account per space, all signed by an operator signing key.
// An account lists one scoped signing key per [Profile]; the broker fills the key's template ([Template]) from the
// tags of the credential it signed, and refuses a credential from such a key that carries permissions of its own.
// So what a stolen signing key can do is written down in one template, and the broker holds it to that. Accounts
// refuse credentials signed by their own key (strict signing), and that key's seed is never kept.
//
// Every template states both of its lists: NATS reads an empty one as "everything". testdata/permissions.txt lists
// what each profile can and cannot do, as a real broker answered; a widening shows there as a difference. It also
// lists what a thief of the agent signing key can reach with hostile tags: agents of that space, and nothing else.
//
// # Credentials
//
// [Credentials] is a user JWT and its seed. It prints, logs and encodes as a fixed text; [Credentials.Reveal] is the
// one way to the seed. Every credential expires. [Identity] is what it says about its holder, read from the tags
// that the broker reads.
//
// # Records
//
// [BrokerRecord] and [AccountRecord] are closed JSON: an unknown field, version or key, or an account that the
// operator did not sign, is refused by name and never half used. The names of records and seeds in a secret store
// are the functions of keys.go.
//
// Values are plain data; everything is safe for concurrent use as long as nobody changes what others read.
package trust
