package wire

// SentFilter returns the filter for everything of one kind that a principal sent: channel, direct or role messages.
// Errors have code bad-request.
func SentFilter(s Space, k Kind, from Principal) (string, error) {
	if err := firstError(s.Validate(), from.checkSpeaker()); err != nil {
		return "", err
	}
	switch k {
	case KindChannel:
		return join(s, "chat", from.Owner, from.Actor, ">"), nil
	case KindDirect:
		return join(s, "inst", "*", "*", from.Owner, from.Actor), nil
	case KindRole:
		return join(s, "svc", "*", from.Owner, from.Actor), nil
	}
	return "", Errorf(CodeBadRequest, "build filter of what %q sent: kind %q is not channel, direct or role", from, k)
}

// ParseKind reads the word of a kind of message that streams store: "channel", "direct" or "role". Its error has code
// bad-request.
func ParseKind(word string) (Kind, error) {
	for _, k := range []Kind{KindChannel, KindDirect, KindRole} {
		if k.String() == word {
			return k, nil
		}
	}
	return 0, Errorf(CodeBadRequest, "parse kind %q: not channel, direct or role", clip(word))
}
