package wire

// The auth callout of NATS, ADR-26: the broker asks the account that a connecting client's credential names whether, and
// as whom, the client may come in. These subjects belong to the broker and not to a space.
const (
	// CalloutSubject is where the broker asks. Its own subscriptions of that account alone may publish there.
	CalloutSubject = "$SYS.REQ.USER.AUTH"
	// CalloutQueue is the queue group of the services that answer, so that each question reaches one of them.
	CalloutQueue = "callout"
	// CalloutKeyHeader carries the public curve key (X…) with which the broker sealed the question.
	CalloutKeyHeader = "Nats-Server-Xkey"
	// CalloutAudience is the audience of every question.
	CalloutAudience = "nats-authorization-request"
)
