package target

import (
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// apart is what the holder of a credential file is whose profile takes no part in a space.
var apart = map[trust.Profile]string{
	trust.Observer: "an observer, which hears every channel and says nothing",
	trust.Admin:    "an admin, which hears every channel, looks into inboxes and says nothing",
	trust.Operator: "an operator, which posts everywhere and receives nothing",
}

// TakesPart refuses the credential of a profile that takes no part, with what its holder has instead; lacks ends the sentence, such as "it
// has no inbox". It is nil for everybody else. What the broker would answer names subjects.
func (t *Target) TakesPart(lacks string) error {
	p := t.Apart()
	if p == "" {
		return nil
	}
	id := t.creds.Identity()
	err := wire.Errorf(wire.CodePermissionDenied, "%s is %s: it %s", id.Principal, apart[p], lacks)
	err.Outcome = wire.OutcomeNotExecuted
	err.Details = map[string]any{"principal": id.Principal.String(), "profile": string(p)}
	return command.Hint(err, t.instead(p)...)
}

// instead is what the holder of such a credential has, and what would take part.
func (t *Target) instead(p trust.Profile) []string {
	creds := ""
	if v := t.Config.Creds; v.Flagged() {
		creds = " --creds " + command.Quote(v.Value)
	}
	has := "what is said, as it comes: cotal tail" + creds
	if p == trust.Operator {
		has = "what it has: cotal send msg <channel> <text>" + creds
	}
	return []string{has, "ask the operator of the space for a credential that takes part: cotal mint <name> --allow-subscribe <channels> --allow-publish <channels>"}
}

// Apart is the profile of the credential file that the command was given, when that takes no part in a space; "" for everybody else.
func (t *Target) Apart() trust.Profile {
	if t.creds == nil || apart[t.creds.Identity().Profile] == "" {
		return ""
	}
	return t.creds.Identity().Profile
}

// SeesPart reports whether delivery may leave channels out of what it lists for an identity: it tells of those whose history that may read.
func SeesPart(id trust.Identity) bool {
	return id.UserKey != "" && !wire.PatternsCover(id.Subscribe, ">") // an open mesh gives no key
}

// Unlisted is the hint what makes the channels known that delivery leaves out for such a credential; "" for everybody else, who takes part in
// what it reads.
func (t *Target) Unlisted() string {
	if t.Apart() == "" {
		return ""
	}
	return "what is listed is what it may read the history of; for all of it ask the operator of the space for: cotal mint " +
		t.creds.Identity().Principal.Actor + " --renew --allow-subscribe '>'" + t.into()
}
