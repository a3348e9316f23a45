package trust

import (
	"encoding/hex"

	"github.com/cotal-go/cotal/wire"
)

// The names of trust records and seeds in a secret store. A space appears as the lower-case hex of its name, so that
// names that differ by case stay apart on every file system.

// BrokerKey names the [BrokerRecord].
const BrokerKey = "auth/broker.json"

// OperatorKey names the seed of the operator's identity. It signs the operator JWT alone.
const OperatorKey = "auth/operator.nk"

// AccountPrefix begins the names of all account records.
const AccountPrefix = "auth/account."

// OperatorSigningKey names the seed of one operator signing key. The public key is part of the name, so that a
// rotation never overwrites a seed that is in use.
func OperatorSigningKey(public string) string { return "auth/operator.sign." + public + ".nk" }

// SystemSigningKey names the seed of the scoped key that signs system credentials of one kind.
func SystemSigningKey(k SystemKind) string { return "auth/system.sign." + string(k) + ".nk" }

// AccountKey names the [AccountRecord] of a space.
func AccountKey(s wire.Space) string { return AccountPrefix + hexName(s) + ".json" }

// SigningKey names the seed of the scoped key that signs credentials of one profile in a space.
func SigningKey(s wire.Space, p Profile) string {
	return "auth/space." + hexName(s) + "/sign." + string(p) + ".nk"
}

// CalloutUserKey names the seed of the user that answers for the callout account of a space.
func CalloutUserKey(s wire.Space) string { return "auth/space." + hexName(s) + "/callout.nk" }

// CalloutXKey names the curve seed to whose public half brokers seal their questions.
func CalloutXKey(s wire.Space) string { return "auth/space." + hexName(s) + "/callout.xkey.nk" }

// CalloutSigningKey names the seed of a scoped key of the callout account of a space.
func CalloutSigningKey(s wire.Space, kind CalloutKind) string {
	return "auth/space." + hexName(s) + "/sign.callout-" + string(kind) + ".nk"
}

// DaemonKey names the credentials file of a daemon of a space.
func DaemonKey(s wire.Space, role string) string { return DaemonPrefix(s) + role + ".creds" }

// DaemonPrefix begins the names of the credentials files of a space's daemons.
func DaemonPrefix(s wire.Space) string { return "space." + hexName(s) + "/" }

func hexName(s wire.Space) string { return hex.EncodeToString([]byte(s)) }
