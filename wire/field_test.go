package wire_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/wire"
)

// nest builds objects of n keys each, one inside the other, and doubles the given key of the given level.
func nest(levels, n, doubledLevel, doubledKey int) string {
	var b strings.Builder
	for level := range levels {
		b.WriteByte('{')
		for k := range n {
			fmt.Fprintf(&b, `"k%d":0,`, k)
		}
		if level == doubledLevel {
			fmt.Fprintf(&b, `"\u006b%d":0,`, doubledKey) // the same key, escaped
		}
		b.WriteString(`"next":`)
	}
	b.WriteString("0")
	b.WriteString(strings.Repeat("}", levels))
	return b.String()
}

// TestRepeatedKeysAtAnyDepth has more keys open than the scanner remembers without asking for memory, and both fewer and
// more in one object than it compares one by one.
func TestRepeatedKeysAtAnyDepth(t *testing.T) {
	for _, n := range []int{1, 5, 14, 15, 16, 17, 40} {
		for level := range 6 {
			var v any
			if err := wire.Decode([]byte(nest(6, n, -1, 0)), &v, wire.MaxRequest); err != nil {
				t.Fatalf("%d keys a level: %v", n, err)
			}
			for _, key := range []int{0, n / 2, n - 1} {
				if err := wire.Decode([]byte(nest(6, n, level, key)), &v, wire.MaxRequest); err == nil {
					t.Errorf("%d keys a level: key %d of level %d is there twice and passes", n, key, level)
				}
			}
		}
	}
}
