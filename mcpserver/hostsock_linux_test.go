package mcpserver_test

import (
	"context"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/mcpserver"
	"github.com/cotal-go/cotal/wire"
)

// The socket of a process that lives and does not come to accepting is not taken from it.
func TestBusySocketStays(t *testing.T) {
	path := filepath.Join(socketDir(t), "host")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }() // the test is over
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for { // until its queue is full
		c, err := net.Dial("unix", path)
		if err != nil {
			break
		}
		defer func() { _ = c.Close() }() // the test is over
	}
	m := cotaltest.New(t, nil)
	s := mcpserver.New(m.Connect(t, m.Credentials(t, "ada", nil), nil), &mcpserver.Options{HostSocket: path})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // it would serve until then
	defer cancel()
	if err := s.Run(ctx); wire.CodeOf(err) != wire.CodeAlreadyExists {
		t.Errorf("Run = %v, want already-exists", err)
	}
}
