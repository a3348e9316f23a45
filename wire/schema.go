package wire

import (
	_ "embed"
	"slices"
)

//go:embed schema/cotal.schema.json
var schema []byte

// Schema returns the JSON Schema (draft 2020-12) of the documents of this package: message at the root, and under $defs
// message, presence, channelConfig, request and reply. Whatever the decoders accept validates against it. The slice is
// the caller's own.
func Schema() []byte { return slices.Clone(schema) }
