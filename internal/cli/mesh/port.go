package mesh

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/wire"
)

// knockTimeout bounds the look at who holds a port; only the words of a refusal depend on it.
const knockTimeout = 2 * time.Second

// ports lists the ports to try, in order. 0 stands for one that the system chooses.
func (p *plan) ports() []int {
	if p.port != 0 {
		return []int{p.port}
	}
	if last := p.project.LastPort(); last != 0 && last != config.DefaultPort {
		return []int{last, config.DefaultPort, 0}
	}
	return []int{config.DefaultPort, 0}
}

// tryPort refuses a port that is taken now, and says by whom.
func (p *plan) tryPort(ctx context.Context, port int) error {
	addr := net.JoinHostPort(p.host, strconv.Itoa(port))
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err == nil {
		return l.Close()
	}
	if _, rerr := net.DefaultResolver.LookupHost(ctx, p.host); rerr != nil {
		return wire.Errorf(wire.CodeBadRequest, "listen on %q: no such host", p.host)
	}
	who := p.knock(ctx, port)
	if who == "" {
		return command.Hint(wire.Errorf(wire.CodeFailedPrecondition, "listen on %q: %v", addr, opCause(err)),
			"choose another: --host <address> --port <port>")
	}
	err = wire.Errorf(wire.CodeConflict, "port %d is taken by %s", port, who)
	if p.pinned {
		return command.Hint(err, "it was given with --port once, and is remembered: choose another with --port <port>, or any with --port 0")
	}
	return command.Hint(err, "choose another: --port <port>, or --port 0 for any")
}

// moved says in words why the mesh listens on another port than the last time; "" when it does not, and when that was asked for.
func (p *plan) moved(ctx context.Context, port int) string {
	before := p.project.LastPort()
	if p.port != 0 || before == 0 || before == port {
		return ""
	}
	why := "was not free"
	if by := p.knock(ctx, before); by != "" {
		why = "is taken by " + by
	}
	return "port " + strconv.Itoa(before) + ", where it listened before, " + why + "; agents and commands of this machine find it at the new one, links and addresses that were given away do not lead to it"
}

// knock says who listens on the port, in words; "" when nobody does.
func (p *plan) knock(ctx context.Context, port int) string {
	host := p.host
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = defaultHost
	}
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	ctx, cancel := context.WithTimeout(ctx, knockTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }()
	if root := p.rootAt(port); root != "" {
		return "the mesh of " + root
	}
	deadline, _ := ctx.Deadline()
	_ = conn.SetReadDeadline(deadline)
	line, err := bufio.NewReaderSize(conn, 64<<10).ReadSlice('\n')
	info, ok := bytes.CutPrefix(line, []byte("INFO "))
	if err != nil || !ok {
		return "another program"
	}
	var greeting struct {
		Version string `json:"version"`
	}
	if json.Unmarshal(info, &greeting) != nil || greeting.Version == "" {
		return "another NATS broker"
	}
	return "another NATS broker (version " + command.Safe(greeting.Version) + "), not one of this project"
}

// rootAt is the project of this machine whose mesh was last recorded on the port.
func (p *plan) rootAt(port int) string {
	meshes, err := p.machine.Meshes()
	if err != nil {
		return ""
	}
	for _, m := range meshes {
		if u, err := url.Parse(m.URL); err == nil && u.Port() == strconv.Itoa(port) && m.Root != p.project.Root {
			return m.Root
		}
	}
	return ""
}

func opCause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// portOf is the port of an address, or 0.
func portOf(address string) int {
	u, err := url.Parse(address)
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		return 0
	}
	return port
}
