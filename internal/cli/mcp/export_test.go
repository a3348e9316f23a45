package mcp

import sdk "github.com/modelcontextprotocol/go-sdk/mcp"

// Finishing is the transport whose input ends once what came before is answered.
func Finishing(t sdk.Transport) sdk.Transport { return finishing{t} }

// LastAnswers is how long that may take.
const LastAnswers = lastAnswers
