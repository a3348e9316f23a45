//go:build !unix

package plainfile

const (
	noFollow = 0
	noWait   = 0
)
