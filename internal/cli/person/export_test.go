package person

// Parse exposes the grammar of a line: the verb as a number, whom it is for, its text.
func Parse(line string) (v int, to, text string, err error) {
	a, err := parse(line)
	return int(a.verb), a.to, a.text, err
}

// The verbs.
const (
	VerbNone    = int(verbNone)
	VerbSay     = int(verbSay)
	VerbWho     = int(verbWho)
	VerbDirect  = int(verbDirect)
	VerbAsk     = int(verbAsk)
	VerbStatus  = int(verbStatus)
	VerbChannel = int(verbChannel)
	VerbLeave   = int(verbLeave)
	VerbHelp    = int(verbHelp)
	VerbQuit    = int(verbQuit)
)
