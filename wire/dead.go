package wire

import "strings"

// The broker's own notices about messages that it gives up to deliver. It alone writes under these subjects: no profile
// may publish there, and a reply that begins with "$JS." is refused.
const (
	deadPrefix     = recordPrefix + "ADVISORY.CONSUMER."
	deadDelivered  = "MAX_DELIVERIES"
	deadTerminated = "MSG_TERMINATED"
)

// DeadSubject is what the subject of a notice in [DeadStream] says.
type DeadSubject struct {
	// Terminated says that the receiver refused the message for good; else it was handed over too often.
	Terminated bool
	// Stream is the one that holds the message, Consumer the queue that gave it up.
	Stream, Consumer string
}

// DeadSubjects returns the subjects of the broker's notices about the direct and role messages of a space. It does not
// validate s.
func DeadSubjects(s Space) []string {
	var out []string
	for _, stream := range []string{DirectStream(s), RoleStream(s)} {
		for _, what := range []string{deadDelivered, deadTerminated} {
			out = append(out, deadPrefix+what+"."+stream+".>")
		}
	}
	return out
}

// DeadFilter returns the filter of the notices about one queue. It does not validate its arguments.
func DeadFilter(stream, consumer string) string { return deadPrefix + "*." + stream + "." + consumer }

// DeadNotices is the filter of all notices.
const DeadNotices = deadPrefix + ">"

// DeadMarks returns the prefix, with its final dot, of the subjects under which it is noted that a dead letter is being
// put back, followed by the sequence of its notice. It does not validate s.
func DeadMarks(s Space) string { return recordPrefix + DeadStream(s) + ".requeue." }

// ParseDeadSubject reads the subject of a notice. Its error has code bad-request and ReasonSubject.
func ParseDeadSubject(subject string) (DeadSubject, error) {
	rest, ok := strings.CutPrefix(subject, deadPrefix)
	t := tokens{rest: rest}
	what := t.next()
	d := DeadSubject{Terminated: what == deadTerminated, Stream: t.next()}
	d.Consumer = t.next()
	if !ok || !t.done() || !d.Terminated && what != deadDelivered || d.Stream == "" || d.Consumer == "" {
		return DeadSubject{}, malformed(ReasonSubject, "parse dead letter subject %q: no notice of the broker about a message", clip(subject))
	}
	return d, nil
}

// ParseDirectDurable undoes [DirectDurable]. Its error has code bad-request.
func ParseDirectDurable(name string) (Lifecycle, error) {
	rest, ok := strings.CutPrefix(name, "dm_")
	parts := strings.Split(rest, "-")
	if !ok || len(parts) != 3 {
		return Lifecycle{}, Errorf(CodeBadRequest, "parse queue %q: no queue of direct messages", clip(name))
	}
	l := Lifecycle{Principal: Principal{Owner: parts[0], Actor: parts[1]}, UID: UID(parts[2])}
	return l, l.Validate()
}

// ParseRoleDurable undoes [RoleDurable]. Its error has code bad-request.
func ParseRoleDurable(name string) (string, error) {
	role, ok := strings.CutPrefix(name, "svc_")
	if !ok {
		return "", Errorf(CodeBadRequest, "parse queue %q: no queue of a role", clip(name))
	}
	return role, ValidateRole(role)
}
