package target

import (
	"errors"
	"slices"
	"strings"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// operators is what only they may do, by the command of delivery that does it.
var operators = map[string]string{
	wire.CommandInbox:      "looking into an inbox without taking is for operators",
	wire.CommandTrace:      "asking about anybody's message is for operators",
	wire.CommandChannelSet: "changing the settings of channels is for operators",
}

// denied says a refusal in words, with the command that would permit it. The subject that it was about is in its details,
// and with --verbose in the text.
func (t *Target) denied(err error) error {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return err
	}
	words, hints := t.inWords(e)
	switch out := t.into(); {
	case words != "":
	case out != "" && trust.ReasonOf(err) == trust.ReasonExceedsParent: // the authority names the command, and knows no files
		return command.Hint(err, "cotal mint writes the file that this command was given with:"+out)
	default:
		return err
	}
	if t.env.Verbose {
		words += " (" + err.Error() + ")"
	}
	out := wire.Errorf(e.Code, "%s", words)
	out.Details, out.Outcome = e.Details, e.Outcome
	return command.Hint(out, append(hints, command.Hints(err)...)...)
}

// inWords reads what a refusal says for programs: a command that was not granted, or a channel. "" for any other.
func (t *Target) inWords(e *wire.Error) (words string, hints []string) {
	who, _ := e.Details["principal"].(string)
	grant, _ := e.Details["grant"].(string)
	missing, _ := e.Details["missing"].(string)
	verb, channel, _ := strings.Cut(missing, " ")
	name, delivery := strings.CutPrefix(grant, wire.DeliveryEndpoint+".")
	asked, manager := strings.CutPrefix(grant, wire.ManagerEndpoint+".")
	asked, _, _ = strings.Cut(asked, " ")
	switch {
	case manager && asked == wire.CommandInput:
		return "typing into the terminal of an agent is for operators", []string{"look at it, and drive it if you may: cotal attach <agent>"}
	case manager:
		return who + " may not ask supervisors for agents: it was not granted spawn", t.permit("--capability", trust.ScopeSpawn, spawns)
	case delivery && operators[name] != "" && t.as != nil:
		return operators[name], []string{"those who have it granted do it here: cotal whoami"}
	case delivery && operators[name] != "":
		return operators[name], []string{"in the folder of the project: the same without --creds", "a credential for it: cotal mint <name> --profile " + string(trust.Operator)}
	case missing == "direct messages" && t.Apart() != "": // every agent sends them
		return who + " may not send direct messages", t.instead(t.Apart())
	case grant != "" && strings.Count(grant, ".") == 1 && !strings.Contains(grant, " "):
		return who + " may not call " + grant, t.permit("--allow-command", grant, func(id trust.Identity) []string { return id.Commands })
	case verb == "subscribe" && channel != "":
		return who + " may not read #" + channel, t.permit("--allow-subscribe", channel, func(id trust.Identity) []string { return id.Subscribe })
	case verb == "publish" && channel != "":
		return who + " may not post to #" + channel, t.permit("--allow-publish", channel, func(id trust.Identity) []string { return id.Publish })
	}
	return "", nil
}

// permit is the command by which an operator lets the agent that speaks do one thing more. A list that is named replaces the
// one before.
func (t *Target) permit(flag, more string, list func(trust.Identity) []string) []string {
	if t.as != nil && t.as.Profile == trust.Agent {
		if flag == "--allow-command" || flag == "--capability" {
			flag = "--scope"
		}
		want := strings.Join(append(slices.Clone(list(*t.as)), more), ",")
		return []string{"ask the operator of the space for: cotal actor grant " + t.as.Principal.Actor + " --owner " + t.as.Principal.Owner + " " + flag + " '" + want + "'"}
	}
	switch f := t.launch; {
	case f != nil && f.Persona == "":
		return []string{"ask who started this agent for it: cotal spawn has " + flag + " " + more}
	case f != nil:
		return []string{"ask who wrote the agent file " + command.Quote(f.Persona) + " for it"}
	}
	if t.creds == nil || t.creds.Identity().Profile != trust.Agent {
		return nil
	}
	id := t.creds.Identity()
	want := strings.Join(append(slices.Clone(list(id)), more), ",")
	return []string{"ask the operator of the space for: cotal mint " + id.Principal.Actor + " --renew " + flag + " '" + want + "'" + t.into()}
}

// spawns are the capabilities that an identity tells of.
func spawns(id trust.Identity) []string {
	if id.Spawns {
		return []string{trust.ScopeSpawn}
	}
	return nil
}
