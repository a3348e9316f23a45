package target

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// Provider is the identity provider that the flags of a command name.
type Provider struct {
	Address          string // issuer, or base address for Better Auth
	Client, Audience string
	Shape, Issuer    string
	Algorithms       []string
	Yes              bool // credential files of the space may end
}

// AddFlags gives a command the flags.
func (v *Provider) AddFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&v.Address, "idp", "", "people sign in at this identity provider: its issuer, https://…; chosen once for a space")
	f.StringVar(&v.Client, "idp-client", "", "id of the public client at the provider (default cotal-<space>-<8 hex digits of this mesh>)")
	f.StringVar(&v.Audience, "idp-audience", "", "audience of the sign-ins, for this mesh alone (default the client id)")
	f.StringVar(&v.Shape, "idp-shape", "", "oidc (default) or better-auth; --idp is then the base address, such as https://app.example/api/auth")
	f.StringVar(&v.Issuer, "idp-issuer", "", "with better-auth: the issuer in its tokens (default the origin of --idp)")
	f.StringSliceVar(&v.Algorithms, "idp-alg", nil, "signature algorithms to accept (default those that the provider names)")
	f.BoolVar(&v.Yes, "yes", false, "let credential files of a space end, which --idp does, without asking")
	propose := func(words ...string) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return words, cobra.ShellCompDirectiveNoFileComp
		}
	}
	_ = c.RegisterFlagCompletionFunc("idp-shape", propose(string(oidc.ShapeOIDC), string(oidc.ShapeBetterAuth)))
	_ = c.RegisterFlagCompletionFunc("idp-alg", propose(oidc.Algorithms()...))
}

// Args repeats the flags on a command line.
func (v *Provider) Args() []string {
	var out []string
	for _, f := range []struct{ flag, value string }{
		{"idp", v.Address}, {"idp-client", v.Client}, {"idp-audience", v.Audience}, {"idp-shape", v.Shape}, {"idp-issuer", v.Issuer},
		{"idp-alg", strings.Join(v.Algorithms, ",")},
	} {
		if f.value != "" {
			out = append(out, "--"+f.flag+"="+f.value)
		}
	}
	if v.Yes {
		out = append(out, "--yes")
	}
	return out
}

// Check refuses flags that contradict each other.
func (v *Provider) Check() error {
	if v.Address == "" {
		for flag, given := range map[string]bool{
			"--idp-client": v.Client != "", "--idp-audience": v.Audience != "", "--idp-shape": v.Shape != "", "--idp-issuer": v.Issuer != "",
			"--idp-alg": len(v.Algorithms) > 0,
		} {
			if given {
				return command.Usagef("%s goes with --idp, the identity provider that it is about", flag)
			}
		}
		return nil
	}
	switch oidc.Shape(v.Shape) {
	case "", oidc.ShapeOIDC:
		if v.Issuer != "" {
			return command.Usagef("--idp-issuer goes with --idp-shape better-auth; else --idp is the issuer")
		}
	case oidc.ShapeBetterAuth:
	default:
		return command.Usagef("--idp-shape %q: want oidc or better-auth", v.Shape)
	}
	for _, a := range v.Algorithms {
		if !slices.Contains(oidc.Algorithms(), a) {
			return command.Usagef("--idp-alg %q: want some of %s", a, strings.Join(oidc.Algorithms(), ","))
		}
	}
	return nil
}

// Pin is the provider as a space is pinned to it: what is kept, or what discovery says now. Fresh says that it was not kept
// before; nothing is written. What is kept needs no provider that answers.
//
// Errors: failed-precondition when the space is pinned to another; those of [oidc.Discover].
func (v *Provider) Pin(ctx context.Context, store secret.Store, s wire.Space) (pin oidc.Pin, fresh bool, err error) {
	have, err := oidc.LoadPin(ctx, store, s)
	switch {
	case err == nil:
		pin, err = v.keep(ctx, store, s, have)
		return pin, false, err
	case !errors.Is(err, wire.ErrNotFound):
		return pin, false, err
	}
	meta, err := oidc.Discover(ctx, v.Address, &oidc.DiscoverOptions{Shape: oidc.Shape(v.Shape), Issuer: v.Issuer})
	if err != nil {
		hints := v.hints()
		if unverified(err) {
			hints = append(hints, "a provider behind an authority of its own: set SSL_CERT_FILE to the file of its certificates, where the system reads that")
		}
		return pin, false, command.Hint(err, hints...)
	}
	client := v.Client
	if client == "" {
		if client, err = clientID(ctx, store, s); err != nil {
			return pin, false, err
		}
	}
	if meta.DeviceEndpoint == "" {
		return pin, false, wire.Errorf(wire.CodeFailedPrecondition,
			"identity provider %q offers no device flow (RFC 8628), by which people sign in from a terminal: switch it on there", v.Address)
	}
	pin, err = meta.Pin(client, v.Audience, v.Algorithms)
	return pin, true, err
}

func (v *Provider) hints() []string {
	if v.Shape == "" {
		return []string{"is that the issuer, byte for byte, and does it answer? for Better Auth: --idp-shape better-auth"}
	}
	return nil
}

// keep compares the flags with what is kept. A space whose account went and came back may have nothing but the pin.
func (v *Provider) keep(ctx context.Context, store secret.Store, s wire.Space, have oidc.Pin) (oidc.Pin, error) {
	want := have
	if shape := oidc.Shape(v.Shape); shape != "" {
		want.Shape = shape
	}
	base := want.Shape == oidc.ShapeBetterAuth && strings.TrimSuffix(v.Address, "/")+"/jwks" == have.JWKSURI
	if !base {
		want.Issuer = v.Address
	}
	if v.Issuer != "" {
		want.Issuer = v.Issuer
	}
	if v.Client != "" {
		want.ClientID = v.Client
	}
	if v.Audience != "" {
		want.Audience = v.Audience
	}
	got, err := oidc.EnsurePin(ctx, store, s, want)
	if errors.Is(err, wire.ErrPrecondition) {
		return got, command.Hint(err, "leave --idp away: it is remembered", "a space that nobody uses yet can be made anew: cotal space rm "+string(s)+" --force")
	}
	return got, err
}

// clientID is the default client id, and so audience, of a space: it differs from mesh to mesh, so that a sign-in at one is worth
// nothing at another.
func clientID(ctx context.Context, store secret.Store, s wire.Space) (string, error) {
	m, err := mint.Init(ctx, store, nil)
	if err != nil {
		return "", err
	}
	rec, err := m.Broker(ctx)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(rec.Operator))
	return "cotal-" + string(s) + "-" + hex.EncodeToString(sum[:4]), nil
}

// Warnings are what an operator should know about a pin.
func Warnings(pin oidc.Pin) []string {
	origin := ""
	if u, err := url.Parse(pin.Issuer); err == nil && u.Host != "" {
		origin = u.Scheme + "://" + u.Host
	}
	if a := strings.TrimSuffix(pin.Audience, "/"); a != strings.TrimSuffix(pin.Issuer, "/") && a != origin {
		return nil
	}
	return []string{"audience " + pin.Audience + " is the provider's own: another mesh that takes it can use the sign-ins of this one; choose one of this mesh alone with --idp-audience"}
}

// Register says what the operator does at the provider.
func Register(pin oidc.Pin) string {
	return "register a public client with this id and the device flow at " + pin.Issuer + ", or choose another with --idp-client"
}

// EndsFiles asks the person whether credential files of a space may end, which they do when it begins to sign people in.
//
// Errors: failed-precondition when that was not allowed.
func (v *Provider) EndsFiles(ctx context.Context, e *command.Env, s string) error {
	if v.Yes {
		return nil
	}
	what := "space " + s + " works with credential files; once people sign in there, every file handed out before is refused, for good"
	refusal := trust.Deny(wire.CodeFailedPrecondition, trust.ReasonStaticMode, "%s; nothing was done", what)
	refusal.Outcome = wire.OutcomeNotExecuted
	return e.Confirm(ctx, command.Hint(refusal, "to do it all the same: the same command with --yes"), what+"; go on")
}

// SignsIn reports whether the records of a project say that people sign in at a space, and whether they have the space at all.
func SignsIn(ctx context.Context, store secret.Store, s wire.Space) (people, exists bool, err error) {
	m, err := mint.Open(ctx, store, nil)
	if errors.Is(err, wire.ErrNotFound) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	rec, err := m.Account(ctx, s)
	if errors.Is(err, wire.ErrNotFound) {
		return false, false, nil
	}
	return err == nil && rec.Callout != nil, err == nil, err
}
