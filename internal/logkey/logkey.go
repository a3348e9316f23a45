// Package logkey names the attributes of log records, so that the same thing carries the same key everywhere and
// a search over one key finds it in every component.
//
// Values are plain words in snake case. A key never holds a body, a token, a seed or a full JWT. The package has
// no state and is safe for concurrent use.
package logkey

// Keys of log attributes.
const (
	Account   = "account"    // public key of a NATS account
	Action    = "action"     // what was done, or tried
	Actor     = "actor"      // second token of a principal
	Attempt   = "attempt"    // which try this is, from 1
	Channel   = "channel"    // channel name or pattern
	Code      = "code"       // wire.Code of an outcome
	Command   = "command"    // control command
	Component = "component"  // part of the program that logs
	Consumer  = "consumer"   // JetStream consumer
	Count     = "count"      // how many
	Duration  = "duration"   // how long
	Endpoint  = "endpoint"   // name on the control rails
	Error     = "error"      // an error value
	Expires   = "expires"    // when something ends
	Face      = "face"       // listener of a service that has several
	From      = "from"       // first of a range, or a sender
	Instance  = "instance"   // one running body of an endpoint
	Key       = "key"        // key of a record or bucket entry
	Limit     = "limit"      // what is allowed
	Message   = "message"    // id of a message
	Name      = "name"       // name of what the message is about
	Outcome   = "outcome"    // executed, not-executed, unknown
	Owner     = "owner"      // first token of a principal
	Path      = "path"       // file or folder
	Peer      = "peer"       // network address of a client
	PID       = "pid"        // process id
	Possible  = "possible"   // whether it is not certain
	Principal = "principal"  // owner.actor
	Profile   = "profile"    // profile of a credential
	Reason    = "reason"     // why something was dropped or refused
	Record    = "record"     // trust record in the secret store
	RequestID = "request_id" // id of a control request
	Role      = "role"       // anycast role
	Sequence  = "sequence"   // stream sequence
	Server    = "server"     // broker id or name
	Signal    = "signal"     // signal that was received
	Space     = "space"      // space name
	Stack     = "stack"      // goroutine stack of a recovered panic
	State     = "state"      // state of a service or grant
	Status    = "status"     // HTTP status of an answer
	Stream    = "stream"     // JetStream stream
	Subject   = "subject"    // NATS subject
	To        = "to"         // last of a range, or an addressee
	UID       = "uid"        // lifecycle uid
	URL       = "url"        // address without credentials in it
	UserKey   = "user_key"   // public key of a NATS user
	Version   = "version"    // version of a program, record or claim
	Wait      = "wait"       // how long until the next try
)
