package trust

import "github.com/cotal-go/cotal/wire"

// View is what a person may ask for beyond an agent's rights. It ends with the bearer that names it, and an agent never gets
// one.
type View string

// The views.
const (
	ViewNone          View = ""
	ViewAdmin         View = "admin"          // reads what is not the caller's, as profile admin
	ViewPurger        View = "purger"         // empties channels and queues
	ViewChannelWriter View = "channel-writer" // changes the settings of channels
	ViewDeployer      View = "deployer"       // brings teams up and down through the supervisor
)

// ParseView checks the name of a view; the empty string is no view. Its error has code bad-request.
func ParseView(s string) (View, error) {
	switch v := View(s); v {
	case ViewNone, ViewAdmin, ViewPurger, ViewChannelWriter, ViewDeployer:
		return v, nil
	}
	return ViewNone, wire.Errorf(wire.CodeBadRequest, "parse view %.64q: not one of %q", s,
		[]View{ViewAdmin, ViewPurger, ViewChannelWriter, ViewDeployer})
}

// Needs returns the scope that a grant must hold for the view, or the empty string for no view.
func (v View) Needs() string {
	switch v {
	case ViewNone:
		return ""
	case ViewDeployer:
		return ScopeSpawn
	}
	return ScopeAdmin
}

// Profile returns the profile of connections under the view.
func (v View) Profile() Profile {
	switch v {
	case ViewAdmin:
		return Admin
	case ViewPurger:
		return Purger
	case ViewChannelWriter:
		return ChannelWriter
	case ViewDeployer:
		return Deployer
	}
	return Agent
}
