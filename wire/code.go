package wire

// HTTP statuses are written as numbers: importing net/http would triple the size of a client.

// Code is one token of the closed catalog of refusals. An extension adds codes under a reverse-DNS name only.
type Code string

// The catalog. The comment says when each is used.
const (
	CodeBadRequest         Code = "bad-request"         // malformed, or not allowed by the grammar
	CodeUnsupportedVersion Code = "unsupported-version" // an envelope version not spoken here
	CodeOpMismatch         Code = "op-mismatch"         // the body names another command than the subject
	CodeClassMismatch      Code = "class-mismatch"      // a class the command does not have
	CodeTargetMismatch     Code = "target-mismatch"     // the body names another target than the subject
	CodeSenderMismatch     Code = "sender-mismatch"     // the body names another sender than the subject
	CodeUnauthenticated    Code = "unauthenticated"     // no acceptable credential
	CodePermissionDenied   Code = "permission-denied"   // known, not permitted
	CodeNotFound           Code = "not-found"           // no such thing, or not yours to know
	CodeAlreadyExists      Code = "already-exists"      // the name is taken
	CodeConflict           Code = "conflict"            // lost a compare-and-swap
	CodeContractMismatch   Code = "contract-mismatch"   // a digest of another contract
	CodeFailedPrecondition Code = "failed-precondition" // the state does not allow it
	CodeDeadlineExceeded   Code = "deadline-exceeded"   // no answer in time
	CodeCancelled          Code = "cancelled"           // the caller gave up
	CodeExpired            Code = "expired"             // a credential, lifecycle or epoch that has ended
	CodeUnavailable        Code = "unavailable"         // nobody answered
	CodeUnimplemented      Code = "unimplemented"       // not built here
	CodeResourceExhausted  Code = "resource-exhausted"  // over a stated limit
	CodeInternal           Code = "internal"            // our bug
)

// Retry says when asking again makes sense.
type Retry string

// The answers of Code.Retry.
const (
	RetryNo      Retry = "no"             // the same request is refused again
	RetryYes     Retry = "yes"            // nothing was done; repeat with backoff
	RetryLater   Retry = "later"          // when the limit has room again
	RetryRenewed Retry = "after-renewal"  // with a renewed credential
	RetryReread  Retry = "after-reading"  // after reading the state again
	RetryChecked Retry = "after-checking" // it may have happened: ask before repeating
)

type codeInfo struct {
	exit, http int
	retry      Retry
	sentence   string
}

var codes = map[Code]codeInfo{
	CodeBadRequest:         {2, 400, RetryNo, "the request is malformed"},
	CodeUnsupportedVersion: {2, 400, RetryNo, "the version is not spoken here"},
	CodeOpMismatch:         {2, 400, RetryNo, "the request names another command than its subject"},
	CodeClassMismatch:      {2, 400, RetryNo, "the request has another class than the command"},
	CodeTargetMismatch:     {2, 400, RetryNo, "the request names another target than its subject"},
	CodeSenderMismatch:     {2, 400, RetryNo, "the payload names another sender than its subject"},
	CodeContractMismatch:   {2, 400, RetryNo, "the contract is not the one served here"},
	CodeUnauthenticated:    {3, 401, RetryRenewed, "no acceptable credential"},
	CodeExpired:            {3, 401, RetryRenewed, "the credential or lifecycle has ended"},
	CodePermissionDenied:   {3, 403, RetryNo, "not permitted"},
	CodeNotFound:           {4, 404, RetryNo, "no such thing"},
	CodeAlreadyExists:      {5, 409, RetryReread, "it exists already"},
	CodeConflict:           {5, 409, RetryReread, "somebody else changed it first"},
	CodeFailedPrecondition: {5, 409, RetryReread, "the state does not allow it"},
	CodeResourceExhausted:  {6, 429, RetryLater, "over a limit"},
	CodeUnavailable:        {7, 503, RetryYes, "nobody answered"},
	CodeDeadlineExceeded:   {8, 504, RetryChecked, "no answer in time"},
	CodeCancelled:          {8, 504, RetryChecked, "cancelled by the caller"},
	CodeUnimplemented:      {2, 501, RetryNo, "not built here"},
	CodeInternal:           {1, 500, RetryNo, "internal error"},
}

// Codes returns the catalog in no particular order.
func Codes() []Code {
	all := make([]Code, 0, len(codes))
	for c := range codes {
		all = append(all, c)
	}
	return all
}

// Known reports whether c is in the catalog.
func (c Code) Known() bool {
	_, ok := codes[c]
	return ok
}

// info treats what is not in the catalog as internal: a code nobody here understands permits nothing.
func (c Code) info() codeInfo {
	if i, ok := codes[c]; ok {
		return i
	}
	return codes[CodeInternal]
}

// Exit returns the exit status of a command refused with c: 0 for the empty code, 1 for one outside the catalog.
func (c Code) Exit() int {
	if c == "" {
		return 0
	}
	return c.info().exit
}

// HTTP returns the HTTP status of a request refused with c: 200 for the empty code, 500 for one outside the catalog.
func (c Code) HTTP() int {
	if c == "" {
		return 200
	}
	return c.info().http
}

// Retry returns when asking again makes sense; RetryNo for the empty code and for one outside the catalog.
func (c Code) Retry() Retry {
	if c == "" {
		return RetryNo
	}
	return c.info().retry
}

// Sentence returns the fixed text of c, the one to send when the reason must stay in the log.
func (c Code) Sentence() string { return c.info().sentence }
