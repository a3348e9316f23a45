package mesh

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/wire"
)

// signing is what a start will do about people.
type signing struct {
	provider target.Provider
	exchange config.People
	away     bool         // signing in is left to processes of its own
	people   []wire.Space // of the records where people sign in

	pin   *oidc.Pin // once it was asked for
	fresh bool      // it is this start that chooses it
}

// planPeople refuses flags that contradict each other or the spaces that there are.
func (u *up) planPeople(ctx context.Context, p *plan, s config.Settings) error {
	if err := u.provider.Check(); err != nil {
		return err
	}
	p.signing = signing{provider: u.provider, away: u.away}
	var err error
	if p.signing.exchange, err = u.exchange.Over(s.People); err != nil {
		return err
	}
	flag := u.exchange.Given()
	if u.parted && u.away {
		flag = "no-authority"
	}
	if p.open {
		switch {
		case u.provider.Address != "":
			return wire.Errorf(wire.CodeFailedPrecondition, "an open mesh asks nobody who they are: --idp needs authentication")
		case flag != "":
			return wire.Errorf(wire.CodeFailedPrecondition, "an open mesh asks nobody who they are: --%s needs authentication, and --idp", flag)
		}
		return nil
	}
	if p.project.Trusted() {
		store, err := target.OpenStore(p.project)
		if err != nil {
			return err
		}
		for _, name := range p.known {
			people, _, err := target.SignsIn(ctx, store, wire.Space(name))
			if err != nil {
				return err
			}
			if people {
				p.signing.people = append(p.signing.people, wire.Space(name))
			}
		}
	}
	return p.signing.check(p, flag)
}

func (s *signing) check(p *plan, flag string) error {
	n := len(s.people)
	if s.provider.Address != "" && !slices.Contains(s.people, wire.Space(p.space)) {
		n++
	}
	switch x := s.exchange; {
	case n == 0 && flag != "":
		return command.Hint(wire.Errorf(wire.CodeFailedPrecondition, "--%s is about spaces where people sign in, and project %q has none", flag, p.project.Root),
			"name the identity provider of space "+p.space+": --idp <issuer>")
	case n > 1 && (x.Port != 0 || x.PublicPort != 0):
		return command.Hint(wire.Errorf(wire.CodeFailedPrecondition, "people sign in at %d spaces of project %q, and one alone can have --exchange-port and --exchange-public-port", n, p.project.Root),
			"start another mesh for the other space in a folder of its own")
	}
	return nil
}

// begins reports whether this start makes people sign in at a space that works with credential files.
func (p *plan) begins() bool {
	return p.signing.provider.Address != "" && slices.Contains(p.known, p.space) && !slices.Contains(p.signing.people, wire.Space(p.space))
}

// endsFiles asks before credential files end.
func (u *up) endsFiles(ctx context.Context, e *command.Env, p *plan) error {
	if !p.begins() {
		return nil
	}
	if err := u.provider.EndsFiles(ctx, e, p.space); err != nil {
		return err
	}
	u.provider.Yes, p.signing.provider.Yes = true, true
	return nil
}

// findPin asks the provider about itself, unless the space is pinned already. It is asked once, however often a start tries.
func (p *plan) findPin(ctx context.Context, e *command.Env, store secret.Store) error {
	s := &p.signing
	if s.provider.Address == "" || s.pin != nil {
		return nil
	}
	e.Progress("asking the identity provider %s about itself", s.provider.Address)
	pin, fresh, err := s.provider.Pin(ctx, store, wire.Space(p.space))
	if err != nil {
		return err
	}
	s.pin, s.fresh = &pin, fresh
	return nil
}

// tryPorts refuses ports of the exchange that are taken now, before anything is recorded: a provider is chosen once.
func (s *signing) tryPorts(ctx context.Context) error {
	if s.away || s.provider.Address == "" && len(s.people) == 0 {
		return nil
	}
	for _, f := range []struct {
		flag string
		port int
	}{{"--exchange-port", s.exchange.Port}, {"--exchange-public-port", s.exchange.PublicPort}} {
		if f.port == 0 {
			continue
		}
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(defaultHost, strconv.Itoa(f.port)))
		if err != nil {
			return command.Hint(wire.Errorf(wire.CodeConflict, "port %d of the exchange cannot be listened on: %v", f.port, opCause(err)), "choose another: "+f.flag+" <port>")
		}
		_ = l.Close()
	}
	return nil
}

// options are those of the node.
func (s *signing) options() cotal.PeopleOptions {
	o := target.PeopleOptions(s.exchange)
	o.Provider, o.Elsewhere = s.pin, s.away
	return o
}

// tell adds to the result of a start what the operator should know about it.
func (p *plan) tell(res *UpResult) {
	s := &p.signing
	if s.fresh {
		res.Register, res.Warnings = "client id "+s.pin.ClientID+": "+target.Register(*s.pin), target.Warnings(*s.pin)
	}
	if s.exchange.PublicPort != 0 && s.exchange.Advertise == "" && loopback(hostOf(res.URL)) {
		res.Warnings = append(res.Warnings, "people elsewhere are told that the broker is at "+res.URL+", which is this machine for each of them; name another with --advertise")
	}
}

// healPeople makes people sign in where the records or the flags say so, and starts again what is down. It says what it did.
func (p *plan) healPeople(ctx context.Context, e *command.Env, node *cotal.NodeClient, st cotal.Status) ([]string, error) {
	var healed []string
	if p.signing.provider.Address != "" {
		store, err := target.OpenStore(p.project)
		if err != nil {
			return nil, err
		}
		if err := p.findPin(ctx, e, store); err != nil {
			return nil, err
		}
		if !slices.Contains(p.signing.people, wire.Space(p.space)) {
			if err := node.SignIn(ctx, p.space, *p.signing.pin); err != nil {
				return nil, err
			}
			healed = append(healed, fmt.Sprintf("people sign in at space %q from now on", p.space))
		}
	}
	down := false
	for _, sp := range st.Spaces {
		switch {
		case !slices.Contains(p.signing.people, wire.Space(sp.Name)):
		case sp.People == nil:
			if err := node.AddSpace(ctx, sp.Name); err != nil { // it completes what is there
				return nil, fmt.Errorf("sign people in at space %q again: %w", sp.Name, err)
			}
			healed = append(healed, fmt.Sprintf("signing in at space %q was not served and is now", sp.Name))
		case (SpaceLine{Name: sp.Name, People: sp.People}).closed() != nil:
			down = true
			healed = append(healed, fmt.Sprintf("signing in at space %q was down and was started again", sp.Name))
		}
	}
	if down {
		return healed, p.reopen(ctx, node)
	}
	return healed, nil
}

// reopen has signing in started again and waits until it serves.
func (p *plan) reopen(ctx context.Context, node *cotal.NodeClient) error {
	if err := node.Heal(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(recordEvery)
	defer tick.Stop()
	var why error
	for {
		select {
		case <-ctx.Done():
			if why == nil {
				why = ctx.Err()
			}
			return command.Hint(why, "its log: "+p.project.LogFile())
		case <-tick.C:
		}
		st, err := node.Status(ctx)
		if err != nil {
			continue // the last answer says more
		}
		why = nil
		for _, s := range spaceLines(st) {
			if err := s.closed(); err != nil {
				why = err
			}
		}
		if why == nil {
			return nil
		}
	}
}

// partedOtherwise refuses --no-authority, given or denied, when the running mesh has it otherwise.
func (u *up) partedOtherwise(st cotal.Status) error {
	for _, s := range st.Spaces {
		if s.People == nil || !u.parted {
			continue
		}
		if away := s.People.Exchange == stateElsewhere; u.away != away {
			return clash("--no-authority", fmt.Sprint(u.away), fmt.Sprint(away))
		}
	}
	return nil
}

// exchangeDiffers refuses settings of the exchange that the running mesh does not have.
func (u *up) exchangeDiffers(want, have config.People) error {
	for _, f := range []struct {
		flag       string
		want, have any
	}{
		{"--exchange-port", want.Port, have.Port}, {"--exchange-public-port", want.PublicPort, have.PublicPort},
		{"--exchange-public-url", orNone(want.PublicURL), orNone(have.PublicURL)}, {"--exchange-trusted-proxy", want.TrustedProxy, have.TrustedProxy},
		{"--advertise", orNone(want.Advertise), orNone(have.Advertise)}, {"--require-key-proof", want.RequireKeyProof, have.RequireKeyProof},
	} {
		if f.want != f.have {
			return clash(f.flag, fmt.Sprint(f.want), fmt.Sprint(f.have))
		}
	}
	return nil
}

// signing says how people sign in, under the line of the space.
func (s SpaceLine) signing(p *command.Printer) {
	st := s.People
	if st == nil {
		return
	}
	p.Line("    people sign in at %s as client %s", command.Safe(st.Issuer), command.Safe(st.ClientID))
	if st.Exchange == stateElsewhere {
		line := "    signed in by processes of its own (cotal serve authority)"
		if s.shut {
			line += ", and none is connected"
		}
		p.Line("%s", line)
		return
	}
	line := "    callout " + st.Callout + ", exchange " + st.Exchange
	var at []string
	if st.URL != "" {
		at = append(at, st.URL)
	}
	if st.PublicURL != "" {
		at = append(at, st.PublicURL)
	}
	if len(at) > 0 {
		line += " at " + command.Safe(strings.Join(at, " and "))
	}
	if st.Primary {
		line += ", primary"
	}
	p.Line("%s", line)
	if st.Error != "" {
		p.Line("    %s", command.Safe(st.Error))
	}
}

// closed is an error when people cannot sign in at a space of theirs.
func (s SpaceLine) closed() error {
	if s.shut {
		return command.Hint(wire.Errorf(wire.CodeUnavailable, "nobody can sign in at space %q: no process signs people in there", s.Name),
			"start one: cotal serve authority --space "+s.Name)
	}
	st := s.People
	ok := func(state string) bool { return state == stateServing || state == stateElsewhere }
	if st == nil || ok(st.Callout) && ok(st.Exchange) {
		return nil
	}
	why := st.Error
	if why == "" {
		why = "callout " + st.Callout + ", exchange " + st.Exchange
	}
	return command.Hint(wire.Errorf(wire.CodeUnavailable, "nobody can sign in at space %q: %s", s.Name, why),
		"it is started again by itself, at once with: cotal up --detach")
}

// unserved is an error when a space is not served, nil otherwise.
func unserved(spaces []SpaceLine) error {
	for _, s := range spaces {
		if err := s.closed(); err != nil {
			return err
		}
		if s.State != stateServing && s.State != stateElsewhere {
			why := s.Error
			if why == "" {
				why = "no reason given"
			}
			err := wire.Errorf(wire.CodeUnavailable, "space %q is %s: %s", s.Name, s.State, why)
			if s.State == cotal.Degraded {
				return command.Hint(err, target.HintRoom)
			}
			return command.Hint(err, "it is started again by itself; look again with: cotal status")
		}
		if err := s.unsupervised(); err != nil {
			return err
		}
	}
	return nil
}
