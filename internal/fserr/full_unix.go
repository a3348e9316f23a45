//go:build !windows

package fserr

import "syscall"

var full = []error{syscall.ENOSPC, syscall.EDQUOT}
