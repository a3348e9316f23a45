package wire

// AuditRecords returns the prefix, with its final dot, of the subjects of audit records. They are where no reply reaches, see
// [RecordPrefix]. It does not validate s.
func AuditRecords(s Space) string { return recordPrefix + AuditStream(s) + "." }

// AuditSubject returns the subject of an audit record about target, the zero principal for one about nobody in particular:
// four tokens after the prefix, "<owner>.<actor>.<action>.<outcome>", with "-.-" for nobody, which is no principal. Action and
// outcome are words of [a-z0-9-]{1,64}. Errors have code bad-request.
func AuditSubject(s Space, target Principal, action, outcome string) (string, error) {
	if action == "" || outcome == "" {
		return "", Errorf(CodeBadRequest, "make audit subject: an action and an outcome are required")
	}
	return auditSubject(s, target, "-.-", action, outcome)
}

// AuditFilter returns the filter of audit records about target. The zero principal, an empty action and an empty outcome each
// take in all. Errors have code bad-request.
func AuditFilter(s Space, target Principal, action, outcome string) (string, error) {
	return auditSubject(s, target, "*.*", action, outcome)
}

func auditSubject(s Space, target Principal, none string, words ...string) (string, error) {
	if err := s.Validate(); err != nil {
		return "", err
	}
	about := none
	if !target.IsZero() {
		if err := target.checkSpeaker(); err != nil {
			return "", err
		}
		about = target.String()
	}
	out := AuditRecords(s) + about
	for _, w := range words {
		switch {
		case w == "":
			out += ".*"
		case inClass(w, classLabel, MaxToken):
			out += "." + w
		default:
			return "", Errorf(CodeBadRequest, "make audit subject: %q is not [a-z0-9-]{1,%d}", clip(w), MaxToken)
		}
	}
	return out, nil
}
