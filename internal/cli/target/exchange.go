package target

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/internal/config"
)

// Exchange is how the flags of a command serve signing in.
type Exchange struct {
	flags   config.People
	changed func(flag string) bool
}

// The flags of Exchange.
const (
	flagPort       = "exchange-port"
	flagPublicPort = "exchange-public-port"
	flagPublicURL  = "exchange-public-url"
	flagProxy      = "exchange-trusted-proxy"
	flagAdvertise  = "advertise"
	flagKeyProof   = "require-key-proof"
)

// AddFlags gives a command the flags.
func (x *Exchange) AddFlags(c *cobra.Command) {
	f, p := c.Flags(), &x.flags
	x.changed = f.Changed
	f.IntVar(&p.Port, flagPort, 0, "port on this machine where tokens are given to programs of this user (default: a free one)")
	f.IntVar(&p.PublicPort, flagPublicPort, 0, "port on this machine that a proxy with TLS leads people elsewhere to")
	f.StringVar(&p.PublicURL, flagPublicURL, "", "where that proxy is reached, https://mesh.example: the address for cotal login")
	f.BoolVar(&p.TrustedProxy, flagProxy, false, "believe the proxy's X-Forwarded-For about who asks")
	f.StringVar(&p.Advertise, flagAdvertise, "", "address of the broker that people are told, nats://host:port or tls://host:port (default: the listener's)")
	f.BoolVar(&p.RequireKeyProof, flagKeyProof, false, "refuse clients that do not bind their tokens to a key")
}

// Over is what is remembered with what the flags say over it, checked.
func (x *Exchange) Over(p config.People) (config.People, error) {
	f := x.flags
	for flag, set := range map[string]func(){
		flagPort: func() { p.Port = f.Port }, flagPublicPort: func() { p.PublicPort = f.PublicPort },
		flagPublicURL: func() { p.PublicURL = f.PublicURL }, flagProxy: func() { p.TrustedProxy = f.TrustedProxy },
		flagAdvertise: func() { p.Advertise = f.Advertise }, flagKeyProof: func() { p.RequireKeyProof = f.RequireKeyProof },
	} {
		if x.changed != nil && x.changed(flag) {
			set()
		}
	}
	if err := p.Check(); err != nil {
		return p, err
	}
	if p.Advertise != "" {
		var err error
		if p.Advertise, err = config.ServerURL(p.Advertise); err != nil {
			return p, err
		}
	}
	return p, nil
}

// Given returns the first of the flags that the command line has, without its dashes; "" when it has none.
func (x *Exchange) Given() string {
	for _, flag := range []string{flagPort, flagPublicPort, flagPublicURL, flagProxy, flagAdvertise, flagKeyProof} {
		if x.changed != nil && x.changed(flag) {
			return flag
		}
	}
	return ""
}

// Args repeats the flags on a command line.
func (x *Exchange) Args() []string {
	f := x.flags
	var out []string
	for _, a := range []struct {
		flag  string
		value any
	}{
		{flagPort, f.Port}, {flagPublicPort, f.PublicPort}, {flagPublicURL, f.PublicURL}, {flagProxy, f.TrustedProxy},
		{flagAdvertise, f.Advertise}, {flagKeyProof, f.RequireKeyProof},
	} {
		if x.changed != nil && x.changed(a.flag) {
			out = append(out, fmt.Sprintf("--%s=%v", a.flag, a.value))
		}
	}
	return out
}

// PeopleOptions are those of a node or a process that signs people in as p says.
func PeopleOptions(p config.People) cotal.PeopleOptions {
	return cotal.PeopleOptions{
		Port: p.Port, PublicPort: p.PublicPort, PublicURL: p.PublicURL, TrustedProxy: p.TrustedProxy, Server: p.Advertise,
		RequireKeyProof: p.RequireKeyProof,
	}
}
