package exchange

import (
	"net/http"
	"net/netip"
	"strings"
)

// unknownPeer is whoever sends from an address that cannot be read.
const unknownPeer = "unknown"

// peerOf names who a request is from: the address of the socket, or with a trusted proxy the last hop of X-Forwarded-For,
// which is the one that this proxy has seen itself. Of an IPv6 address the first 64 bits count: who has one address there
// has them all.
func peerOf(r *http.Request, trustedProxy bool) string {
	if lines := r.Header.Values("X-Forwarded-For"); trustedProxy && len(lines) > 0 {
		last := lines[len(lines)-1]
		if peer, ok := parsePeer(strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:])); ok {
			return peer
		}
	}
	if peer, ok := parsePeer(r.RemoteAddr); ok {
		return peer
	}
	return unknownPeer
}

func parsePeer(s string) (string, bool) {
	ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	if err != nil {
		with, perr := netip.ParseAddrPort(s)
		if perr != nil {
			return "", false
		}
		ip = with.Addr()
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is4() {
		return ip.String(), true
	}
	block, err := ip.Prefix(64)
	return block.String(), err == nil
}
