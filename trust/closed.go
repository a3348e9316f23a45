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
	if again, err := json.Marshal(v); err == nil && bytes.Equal(again, data) {
		return nil // what we write has nothing unknown, and is nearly all there is: the second decoding costs twice this
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return wire.Errorf(wire.CodeBadRequest, "not the JSON that this build writes: unknown field")
	}
	return nil
}
