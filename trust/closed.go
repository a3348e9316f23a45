package trust

import (
	"bytes"
	"encoding/json"

	"github.com/cotal-go/cotal/wire"
)

// decodeClosed decodes JSON that we alone write: on top of what wire.Decode refuses (size, depth, doubled keys, wrong
// case, trailing data) it refuses unknown fields. The error quotes nothing of the data.
func decodeClosed(data []byte, v any, limit int) error {
	if err := wire.Decode(data, v, limit); err != nil {
		return wire.Errorf(wire.CodeBadRequest, "not the JSON that this build writes")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return wire.Errorf(wire.CodeBadRequest, "not the JSON that this build writes: unknown field")
	}
	return nil
}
