package wire

import (
	"slices"
	"strings"
)

// ValidateChannel reports whether ch is a concrete channel: segments of [A-Za-z0-9_-]+ joined by dots, at most 4,096
// bytes, no wildcard. Its error has code bad-request.
func ValidateChannel(ch string) error {
	if !channelOK(ch, false) {
		return Errorf(CodeBadRequest, "check channel %q: not dotted [A-Za-z0-9_-]+ of at most %d bytes", clip(ch), MaxChannel)
	}
	return nil
}

// ValidatePattern reports whether p is a channel or a channel pattern: as ValidateChannel, where a whole segment may be
// "*" (any one segment) and the last one may be ">" (one or more further segments). Its error has code bad-request.
func ValidatePattern(p string) error {
	if !channelOK(p, true) {
		return Errorf(CodeBadRequest, "check channel pattern %q: not dotted [A-Za-z0-9_-]+, \"*\" or a last \">\", of at most %d bytes",
			clip(p), MaxChannel)
	}
	return nil
}

// channelOK walks the bytes once: this runs for every message received.
func channelOK(s string, wildcards bool) bool {
	if len(s) == 0 || len(s) > MaxChannel {
		return false
	}
	start := 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) && s[i] != '.' {
			if charClass[s[i]]&classToken == 0 && !wildcards {
				return false
			}
			continue
		}
		if wildcards && !patternSegmentOK(s[start:i], i == len(s)) || i == start {
			return false
		}
		start = i + 1
	}
	return true
}

func patternSegmentOK(seg string, last bool) bool {
	return seg == "*" || seg == ">" && last || inClass(seg, classToken, MaxChannel)
}

// PatternMatches reports whether the pattern takes in the concrete channel. "*" stands for one segment, a last ">" for
// one or more. An invalid pattern or channel matches nothing.
func PatternMatches(pattern, channel string) bool {
	return channelOK(channel, false) && PatternCovers(pattern, channel)
}

// PatternsCover reports whether one of the patterns of outer covers inner, see [PatternCovers]. What only several of them take in
// together is not covered.
func PatternsCover(outer []string, inner string) bool {
	return slices.ContainsFunc(outer, func(o string) bool { return PatternCovers(o, inner) })
}

// PatternCovers reports whether every channel inner takes in is also taken in by outer, so that a grant of inner stays
// inside a grant of outer. Both are channels or patterns; an invalid one covers nothing and is covered by nothing.
func PatternCovers(outer, inner string) bool {
	if !channelOK(outer, true) || !channelOK(inner, true) {
		return false
	}
	for {
		o, oRest, oMore := strings.Cut(outer, ".")
		i, iRest, iMore := strings.Cut(inner, ".")
		switch {
		case o == ">":
			return true
		case i == ">", o != "*" && o != i:
			return false
		case !oMore || !iMore:
			return oMore == iMore
		}
		outer, inner = oRest, iRest
	}
}
