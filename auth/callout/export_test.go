package callout

import "time"

// Hosts opens the table of addresses to tests.
type Hosts = hosts

// Limits of the table of addresses, and of refusals that wait to be signed.
const (
	SuspectAt   = suspectAt
	MaxHosts    = maxHosts
	MaxText     = maxText
	MaxRefusals = maxRefusals
)

// NewHosts makes a table of addresses.
func NewHosts() *Hosts { return newHosts() }

// Suspect reports whether an address is suspect at a moment.
func (h *hosts) Suspect(host string, now time.Time) bool { return h.suspect(host, now) }

// Blame counts a bad token at a moment.
func (h *hosts) Blame(host string, now time.Time) { h.blame(host, now) }

// Len is how many addresses are remembered.
func (h *hosts) Len() int { return h.len() }

// Question is what a test reads of a question.
type Question struct{ Server, UserKey, Token, Name string }

// DecodeRequest reads a question and reports whether its server signed it.
func DecodeRequest(token []byte) (q Question, verified bool, err error) {
	r, err := decodeRequest(token)
	if err != nil {
		return q, false, err
	}
	return Question{r.NATS.Server.ID, r.NATS.UserKey, r.NATS.Connect.Token, r.NATS.Connect.Name}, r.verify(), nil
}

// Clip bounds a text.
func Clip(text string) string { return clip(text) }

// Patient lets brokers wait as long for an answer as a test needs.
func Patient(o *Options, d time.Duration) { o.window = d }
