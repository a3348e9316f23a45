package manifest

// ParseLedger is how a ledger is read once its file was looked at.
var ParseLedger = parseLedger
