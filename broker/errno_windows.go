package broker

import (
	"errors"
	"syscall"
)

// wsaAddrInUse and wsaAccess are what Windows answers for a port that somebody listens on, the second when the other
// holds it exclusively.
const (
	wsaAccess    = syscall.Errno(10013)
	wsaAddrInUse = syscall.Errno(10048)
)

func addressInUse(err error) bool { return errors.Is(err, wsaAddrInUse) || errors.Is(err, wsaAccess) }
