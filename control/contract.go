package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/cotal-go/cotal/wire"
)

// Effect says whether running a command again is safe.
type Effect string

// The effects. A command without one does not register.
const (
	// Read changes nothing: it may be repeated whatever became of the first request.
	Read Effect = "read"
	// Write changes something: repeat it only when the outcome was not-executed.
	Write Effect = "write"
)

// Names that every endpoint answers without registering them.
const (
	CommandDescribe = "describe"
	CommandHealth   = "health"
)

// Command describes what an endpoint serves under one name.
type Command struct {
	// Name is [a-z0-9-]{1,32}; required. Describe and health are taken.
	Name string
	// Description is one sentence for the reader of the contract.
	Description string
	// Effect is required: there is no safe guess.
	Effect Effect
	// Modes are the addressing modes that the command admits. Nil means untargeted only.
	Modes []wire.Mode
	// In and Out are the schemas of arguments and result. Nil means what the Go types say in [Handle], and no
	// payload in [Service.Handle].
	In, Out *jsonschema.Schema
	// Unchecked skips validation against In: the handler checks its arguments itself, Go types included. The
	// schema is published all the same.
	Unchecked bool
}

func (c Command) check() error {
	if err := wire.ValidateCommand(c.Name); err != nil {
		return err
	}
	if c.Effect != Read && c.Effect != Write {
		return fmt.Errorf("effect %q of command %q is not read or write", c.Effect, c.Name)
	}
	for _, m := range c.Modes {
		switch m {
		case wire.ModeNone, wire.ModeSelf, wire.ModeOwner, wire.ModeAny, wire.ModeExact:
		default:
			return fmt.Errorf("mode %q of command %q is unknown", m, c.Name)
		}
	}
	return nil
}

// Contract is what an endpoint serves, as describe answers it. Schemas are found by their digest, and Digest covers
// the commands, so an unchanged digest means an unchanged contract.
type Contract struct {
	V        int                        `json:"v"`
	Endpoint string                     `json:"endpoint"`
	Digest   string                     `json:"digest"`
	Commands []CommandContract          `json:"commands"` // by name
	Schemas  map[string]json.RawMessage `json:"schemas"`  // by digest

	received json.RawMessage // Commands as they came, with members not known here
}

// contractFields has the JSON of Contract without its methods.
type contractFields Contract

// UnmarshalJSON keeps the commands as they came, for [Contract.Verify]: a later edition may say more about a command than
// is known here, and its digest covers that.
func (c *Contract) UnmarshalJSON(data []byte) error {
	var fields contractFields
	var raw struct {
		Commands json.RawMessage `json:"commands"`
	}
	if err := errors.Join(json.Unmarshal(data, &fields), json.Unmarshal(data, &raw)); err != nil {
		return err
	}
	*c = Contract(fields)
	c.received = raw.Commands
	return nil
}

// ContractVersion is the only value of Contract.V. History: 1, 2026-11, first.
const ContractVersion = 1

// CommandContract is one command of a contract.
type CommandContract struct {
	Name         string      `json:"name"`
	Description  string      `json:"description,omitempty"`
	Effect       Effect      `json:"effect"`
	Class        string      `json:"class"`
	Modes        []wire.Mode `json:"modes"`
	InputDigest  string      `json:"inputDigest"`
	OutputDigest string      `json:"outputDigest"`
}

// Command returns the command of a name.
func (c *Contract) Command(name string) (CommandContract, bool) {
	i, ok := slices.BinarySearchFunc(c.Commands, name, func(cc CommandContract, n string) int {
		return strings.Compare(cc.Name, n)
	})
	if !ok {
		return CommandContract{}, false
	}
	return c.Commands[i], true
}

// Verify recomputes every digest and checks that each command's schemas are there. The digest of a decoded contract is that
// of the commands as they came. What [Caller.Describe] returns has passed it. Errors have code contract-mismatch, or
// unsupported-version.
func (c *Contract) Verify() error {
	if c.V != ContractVersion {
		return wire.Errorf(wire.CodeUnsupportedVersion, "verify contract of %q: version %d, want %d", c.Endpoint, c.V, ContractVersion)
	}
	for want, raw := range c.Schemas {
		if got, err := digestJSON(raw); err != nil || got != want {
			return wire.Errorf(wire.CodeContractMismatch, "verify contract of %q: schema %q has digest %q", c.Endpoint, want, got)
		}
	}
	for i, cmd := range c.Commands {
		if i > 0 && c.Commands[i-1].Name >= cmd.Name {
			return wire.Errorf(wire.CodeContractMismatch, "verify contract of %q: command %q is not in order", c.Endpoint, cmd.Name)
		}
		if c.Schemas[cmd.InputDigest] == nil || c.Schemas[cmd.OutputDigest] == nil {
			return wire.Errorf(wire.CodeContractMismatch, "verify contract of %q: command %q lacks a schema", c.Endpoint, cmd.Name)
		}
	}
	if got, err := c.digestOwn(); err != nil || got != c.Digest {
		return wire.Errorf(wire.CodeContractMismatch, "verify contract of %q: digest is %q, commands have %q", c.Endpoint, c.Digest, got)
	}
	return nil
}

// Validate checks arguments against the input schema of a command, as the endpoint will. Errors have code
// unimplemented for an unknown command and bad-request, with the path in its details, for a wrong value.
func (c *Contract) Validate(command string, args json.RawMessage) error {
	cmd, ok := c.Command(command)
	if !ok {
		return wire.Errorf(wire.CodeUnimplemented, "endpoint %q has no command %q", c.Endpoint, command)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(c.Schemas[cmd.InputDigest], &s); err != nil {
		return wire.Errorf(wire.CodeContractMismatch, "read input schema of %q: %v", command, err)
	}
	in, err := compileSchema(&s)
	if err != nil {
		return wire.Errorf(wire.CodeContractMismatch, "compile input schema of %q: %v", command, err)
	}
	if len(args) > 0 {
		var probe any
		if err := wire.Decode(args, &probe, wire.MaxRequest); err != nil {
			return err
		}
	}
	if e := in.check("args", args); e != nil {
		return e
	}
	return nil
}

func (c *Contract) digestOwn() (string, error) {
	if c.received != nil {
		return digestJSON(c.received)
	}
	return digestCommands(c.Commands)
}

func digestCommands(cmds []CommandContract) (string, error) {
	raw, err := json.Marshal(cmds)
	if err != nil {
		return "", fmt.Errorf("encode commands: %w", err)
	}
	return digestJSON(raw)
}

// contractOf builds the contract of a set of commands.
func contractOf(endpoint string, cmds map[string]*command) (*Contract, error) {
	c := &Contract{V: ContractVersion, Endpoint: endpoint, Schemas: map[string]json.RawMessage{}}
	for _, cmd := range cmds {
		c.Schemas[cmd.in.digest], c.Schemas[cmd.out.digest] = cmd.in.raw, cmd.out.raw
		c.Commands = append(c.Commands, CommandContract{
			Name: cmd.Name, Description: cmd.Description, Effect: cmd.Effect, Class: wire.ClassEphemeral, Modes: cmd.Modes,
			InputDigest: cmd.in.digest, OutputDigest: cmd.out.digest,
		})
	}
	slices.SortFunc(c.Commands, func(a, b CommandContract) int { return strings.Compare(a.Name, b.Name) })
	digest, err := digestCommands(c.Commands)
	c.Digest = digest
	return c, err
}

// only reduces the contract to one command; its digest is that of the one.
func (c *Contract) only(name string) (*Contract, error) {
	cmd, ok := c.Command(name)
	if !ok {
		return nil, wire.Errorf(wire.CodeNotFound, "endpoint %q has no command %q", c.Endpoint, name)
	}
	one := &Contract{V: c.V, Endpoint: c.Endpoint, Commands: []CommandContract{cmd}, Schemas: map[string]json.RawMessage{
		cmd.InputDigest:  bytes.Clone(c.Schemas[cmd.InputDigest]),
		cmd.OutputDigest: bytes.Clone(c.Schemas[cmd.OutputDigest]),
	}}
	var err error
	one.Digest, err = digestCommands(one.Commands)
	return one, err
}
