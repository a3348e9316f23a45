package wire

import "time"

// MaxDeliveries is how often the broker hands over one direct or role message. One that is not handled then is a dead
// letter.
const MaxDeliveries = 20

// redeliveryWaits are how long a message that was handed over may stay unanswered before it is handed over again, by
// attempt; the last one stands for all later ones.
var redeliveryWaits = [...]time.Duration{
	time.Minute, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
}

// RedeliveryWaits returns how long a message may stay unanswered after each attempt; the last one stands for all later
// ones.
func RedeliveryWaits() []time.Duration {
	out := redeliveryWaits
	return out[:]
}

// RedeliveryWait is how long the broker waits for an answer after the given attempt, which counts from 1. "Still working"
// starts it again.
func RedeliveryWait(attempt int) time.Duration {
	return redeliveryWaits[min(max(attempt, 1), len(redeliveryWaits))-1]
}

// NakDelay is what to ask the broker for so that it hands a message over again after d: it reckons the delay of a negative
// answer from its shortest wait, not from that of the attempt, so what is asked for may be negative. It is 0 only for
// no delay at all, which is asked for without one and granted at once.
func NakDelay(d time.Duration, attempt int) time.Duration {
	if d <= 0 {
		return 0
	}
	if ask := d - (RedeliveryWait(attempt) - redeliveryWaits[0]); ask != 0 {
		return ask
	}
	return 1
}
