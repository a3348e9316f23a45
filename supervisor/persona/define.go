package persona

import (
	"errors"
	"slices"

	"github.com/cotal-go/cotal/wire"
)

// Definer is who defines a persona through the mesh.
type Definer struct {
	// Principal is who asks, as the broker vouches for it: owner.actor.
	Principal string
	// Any lets it change what others defined, and the files of the host, and name a role: an operator.
	Any bool
	// Grant is what a peer holds itself; nil when nobody here knows. Operators need none.
	Grant *wire.ManagedGrant
}

// Define makes an agent file for a peer, or changes the text of one that it defined, and the model if one is named. The first who
// defines a name keeps it.
//
// A file must not allow more than the peer that defines it holds: an operator who spawns it later would grant that. So its role, its
// capabilities, its program, its folder and its environment are never a peer's to say, and a new one hears the channel general and may
// post there as far as the peer itself may. Of a peer whose grant is not known it hears general and posts nowhere.
//
// Errors: bad-request for what would be no agent file; permission-denied, with "key", for a role that a peer names, and for a name that
// is the host's or somebody else's; failed-precondition for a role, description or connector other than the file's, and for a file
// that is not valid.
func (s *Store) Define(by Definer, req wire.PersonaRequest) (p Persona, created bool, err error) {
	if err := ValidateName(req.Name); err != nil {
		return Persona{}, false, err
	}
	if who, err := wire.ParsePrincipal(by.Principal); err != nil || !who.OwnerKnown() {
		return Persona{}, false, wire.Errorf(wire.CodeInternal, "define persona %q: nobody asks", req.Name)
	}
	if req.Connector == ConnectorCommand {
		return Persona{}, false, wire.Errorf(wire.CodePermissionDenied, "define persona %q: the program of a command is not a peer's to name", req.Name)
	}
	p = Persona{
		Name: req.Name, Description: req.Description, Agent: req.Connector, Model: req.Model, Owner: by.Principal, Text: trimText(req.Text),
	}
	if by.Any {
		p.Role = req.Role
	}
	p.Subscribe, p.AllowPublish = by.allows()
	p.AllowSubscribe = slices.Clone(p.Subscribe)
	if p.Text == "" {
		return Persona{}, false, wire.Errorf(wire.CodeBadRequest, "define persona %q: it has no text", req.Name)
	}
	have, err := s.Names()
	switch there := slices.Contains(have, req.Name); {
	case err != nil:
		return Persona{}, false, err
	case there: // Create finds it
	case len(have) >= MaxFiles:
		return Persona{}, false, wire.Errorf(wire.CodeResourceExhausted, "define persona %q: there are %d agent files, at most %d", req.Name, len(have), MaxFiles)
	case req.Role != "" && !by.Any:
		return Persona{}, false, notYours(req.Name, "role")
	}
	err = s.Create(p)
	switch {
	case errors.Is(err, wire.ErrExists):
		p, err = s.redefine(by, req)
		return p, false, err
	case err != nil:
		return Persona{}, false, err
	}
	return p, true, nil
}

// allows are the channels that a new file hears and may post to.
func (by Definer) allows() (subscribe, publish []string) {
	general := []string{DefaultChannel}
	switch {
	case by.Any:
		return general, general
	case by.Grant == nil:
		return general, nil
	}
	if wire.PatternsCover(by.Grant.Subscribe, DefaultChannel) {
		subscribe = general
	}
	if wire.PatternsCover(by.Grant.Publish, DefaultChannel) {
		publish = general
	}
	return subscribe, publish
}

// notYours is the refusal of a key that says what an agent may do.
func notYours(name, key string) error {
	e := wire.Errorf(wire.CodePermissionDenied, "define persona %q: %s is an operator's to set; leave it out, and name it when you spawn, if your grant has it", name, key)
	e.Outcome, e.Details = wire.OutcomeNotExecuted, map[string]any{"key": key, "grant": "operator"}
	return e
}

// redefine changes text and model of a file.
func (s *Store) redefine(by Definer, req wire.PersonaRequest) (Persona, error) {
	data, err := s.Source(req.Name)
	if err != nil {
		return Persona{}, err
	}
	was, err := Parse(s.shown(req.Name), req.Name, data)
	if err != nil {
		return Persona{}, invalid(err)
	}
	if err := mayChange(by, was); err != nil {
		return Persona{}, err
	}
	for _, f := range []struct{ key, asked, is string }{
		{"role", req.Role, was.Role}, {"description", req.Description, was.Description}, {"connector", req.Connector, was.Agent},
	} {
		if f.asked != "" && f.asked != f.is {
			return Persona{}, wire.Errorf(wire.CodeFailedPrecondition, "define persona %q: its %s is %q, and only text and model can be changed", req.Name, f.key, f.is)
		}
	}
	model := req.Model
	if model == "" {
		model = was.Model
	}
	out, err := Patch(s.shown(req.Name), req.Name, data, req.Text, model)
	if err != nil {
		return Persona{}, err
	}
	if err := s.Put(req.Name, out); err != nil {
		return Persona{}, err
	}
	was.Text, was.Model = trimText(req.Text), model
	return was, nil
}

func mayChange(by Definer, p Persona) error {
	switch {
	case by.Any, p.Owner == by.Principal:
		return nil
	case p.Owner == "":
		return wire.Errorf(wire.CodePermissionDenied, "define persona %q: it is a file of the host", p.Name)
	}
	return wire.Errorf(wire.CodePermissionDenied, "define persona %q: %s defined it", p.Name, p.Owner)
}

// Catalog is the folder as peers see it, by name; with a name, that one alone and its text. Files that are not valid are in it
// with what is wrong, without their content.
//
// Errors: as [Store.List].
func (s *Store) Catalog(name string) ([]wire.Persona, error) {
	all, err := s.List()
	if err != nil {
		return nil, err
	}
	if name != "" {
		all = slices.DeleteFunc(all, func(e Entry) bool { return e.Name != name })
	}
	out := make([]wire.Persona, 0, len(all))
	for _, e := range all {
		if e.Err != nil {
			if ValidateName(e.Name) == nil {
				out = append(out, wire.Persona{Name: e.Name, Invalid: e.Err.Error()})
			}
			continue
		}
		p := e.Persona.Wire(name != "")
		if name != "" {
			p.Capabilities, p.Subscribe = told(e.Persona.Capabilities), told(e.Persona.Subscribe)
			p.AllowSubscribe, p.AllowPublish = told(e.Persona.AllowSubscribe), told(e.Persona.AllowPublish)
		}
		out = append(out, p)
	}
	return out, nil
}

// told is a list that is known, also when it is empty.
func told(list []string) []string { return append([]string{}, list...) }
