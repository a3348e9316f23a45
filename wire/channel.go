package wire

import (
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// DefaultsKey is the key of a space's defaults in the channels bucket. No channel can have this name.
const DefaultsKey = "=defaults"

// ClearedKey is the first token of the keys, in the bucket of cursors, of what operators cleared of channels.
const ClearedKey = "=cleared"

// DeliveryClass is the promise of a channel.
type DeliveryClass string

// The delivery classes.
const (
	ClassLive    DeliveryClass = "live"    // at-most-once, to who is subscribed
	ClassDurable DeliveryClass = "durable" // at-least-once for current members within retention
)

// Bounds of a channel configuration, in characters.
const (
	MaxDescription  = 200
	MaxInstructions = 2000
)

// ChannelConfig configures a channel, or under DefaultsKey a space. A nil or empty field says nothing, so the next level
// decides.
type ChannelConfig struct {
	Replay        *bool  `json:"replay,omitempty"`        // show history on join; noise control, not secrecy
	ReplayWindow  string `json:"replayWindow,omitempty"`  // how far back: ^\d+[smhd]$ and not zero
	DeliveryClass string `json:"deliveryClass,omitempty"` // a DeliveryClass
	Description   string `json:"description,omitempty"`   // at most 200 characters
	Instructions  string `json:"instructions,omitempty"`  // at most 2,000 characters; advice to whoever joins
}

// DecodeChannelConfig decodes and checks a value of the channels bucket. Errors have code bad-request and ReasonJSON.
func DecodeChannelConfig(data []byte) (*ChannelConfig, error) {
	c := new(ChannelConfig)
	if err := Decode(data, c, MaxChannelConfig); err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// Validate reports whether c is a configuration of the contract. Its error has code bad-request and ReasonJSON.
func (c *ChannelConfig) Validate() error {
	switch DeliveryClass(c.DeliveryClass) {
	case "", ClassLive, ClassDurable:
	default:
		return malformed(ReasonJSON, "check channel config: delivery class %q is not live or durable", clip(c.DeliveryClass))
	}
	if c.ReplayWindow != "" {
		if _, ok := parseWindow(c.ReplayWindow); !ok {
			return malformed(ReasonJSON, "check channel config: replay window %q is not a positive number and one of s, m, h, d", clip(c.ReplayWindow))
		}
	}
	if n := utf8.RuneCountInString(c.Description); n > MaxDescription || !utf8.ValidString(c.Description) {
		return malformed(ReasonJSON, "check channel config: description of %d characters, at most %d of UTF-8", n, MaxDescription)
	}
	if n := utf8.RuneCountInString(c.Instructions); n > MaxInstructions || !utf8.ValidString(c.Instructions) {
		return malformed(ReasonJSON, "check channel config: instructions of %d characters, at most %d of UTF-8", n, MaxInstructions)
	}
	return nil
}

// ResolvedChannel is what a channel's configuration and its space's defaults come to.
type ResolvedChannel struct {
	Replay bool
	Window time.Duration // 0 is all that is retained
	Class  DeliveryClass
}

// ResolveChannel combines a channel's configuration with its space's defaults; either may be nil. Every part of the
// system that needs a channel's class or replay asks here. Where both are silent: replay on, no window, durable. A replay
// window that does not parse turns replay off.
func ResolveChannel(cfg, defaults *ChannelConfig) ResolvedChannel {
	r := ResolvedChannel{Replay: true, Class: ClassDurable}
	for _, c := range []*ChannelConfig{defaults, cfg} {
		if c == nil {
			continue
		}
		if c.Replay != nil {
			r.Replay = *c.Replay
		}
		if c.DeliveryClass != "" {
			r.Class = DeliveryClass(c.DeliveryClass)
		}
		if c.ReplayWindow != "" {
			r.Window, _ = parseWindow(c.ReplayWindow)
			if r.Window == 0 {
				r.Replay = false
			}
		}
	}
	return r
}

// parseWindow reads digits and a unit. It refuses zero, for which replay=false exists, and what a Duration cannot hold.
func parseWindow(s string) (time.Duration, bool) {
	if len(s) < 2 {
		return 0, false
	}
	var unit time.Duration
	switch s[len(s)-1] {
	case 's':
		unit = time.Second
	case 'm':
		unit = time.Minute
	case 'h':
		unit = time.Hour
	case 'd':
		unit = 24 * time.Hour
	default:
		return 0, false
	}
	digits := s[:len(s)-1]
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n <= 0 || n > int64(math.MaxInt64/unit) {
		return 0, false
	}
	return time.Duration(n) * unit, true
}
