package doctor

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/wire"
)

// kinds are the places where the key of sessions can be, in words.
func kind(k string) string {
	switch k {
	case login.KindKeyring:
		return "sealed with a key in the keyring of the system"
	case login.KindPassphrase:
		return "sealed with a passphrase"
	}
	return "sealed with a key in a private file"
}

// person looks at the sign-in of this machine, if the space is one of people.
func (x *examination) person(ctx context.Context) {
	people, err := x.t.People(ctx)
	if err != nil { // of the records, which are told above
		if x.t.Config.Remote != nil {
			x.add(auth.FindingFail, checkSession, hint(err), "%v", err)
		}
		return
	}
	if people == nil {
		return
	}
	if people.Record.Remote() {
		if _, err := people.Describe(ctx); err != nil {
			x.add(status(err), checkExchange, "ask the operator of the mesh whether it runs", "%v", err)
		} else {
			x.add(auth.FindingOK, checkExchange, "", "the mesh at %s answers", people.Where())
		}
	}
	src, where, err := people.Source(ctx)
	if err != nil {
		x.add(auth.FindingFail, checkSession, x.reopen(err, hint(err)), "%v", err)
		return
	}
	session, err := src.Session(ctx)
	switch {
	case errors.Is(err, wire.ErrNotFound):
		x.add(auth.FindingWarn, checkSession, people.LoginCommand(), "nobody of this machine is signed in")
		return
	case err != nil:
		x.add(auth.FindingFail, checkSession, x.reopen(err, people.LoginCommand()), "%v", err)
		return
	}
	// It is renewed if that is due, as the next command would do.
	_, until, err := src.IDToken(ctx)
	if err != nil {
		x.add(status(err), checkSession, people.LoginCommand(), "%s signed in at %s, and that cannot be renewed: %v", session.Subject, view.When(session.Obtained), err)
		return
	}
	x.add(auth.FindingOK, checkSession, "", "%s signed in at %s, proved until %s; %s", session.Subject, session.Provider.Issuer, until.UTC().Format(time.RFC3339), kind(where))
}

// reopen is what repairs sessions that cannot be opened: signing in again does not where the store refuses the mode of their files.
func (x *examination) reopen(err error, otherwise string) string {
	if strings.Contains(err.Error(), refusedMode) {
		return "chmod -R go-rwx " + command.Quote(x.t.Config.Machine.SessionDir())
	}
	return otherwise
}

// status is how bad it is that somebody else gave an error: who cannot be reached may come back.
func status(err error) auth.FindingStatus {
	if code := wire.CodeOf(err); code == wire.CodeUnavailable || code == wire.CodeDeadlineExceeded {
		return auth.FindingWarn
	}
	return auth.FindingFail
}
