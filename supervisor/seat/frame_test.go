package seat

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// Whatever comes, a frame decoder does not panic nor take more than the limit, and what it takes it writes the same.
func FuzzFrame(f *testing.F) {
	f.Add(appendFrame(nil, frameHello, []byte(`{"v":1}`)))
	f.Add(appendFrame(appendFrame(nil, frameOutput, []byte("x")), frameSnapshot, sizeBytes(80, 24), []byte{0}, []byte("y")))
	f.Add([]byte{0, 0, 0, 0, 1})
	f.Add([]byte{255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		var again []byte
		for {
			kind, body, err := readFrame(r)
			if err != nil {
				break
			}
			if len(body) >= maxFrame {
				t.Fatalf("body of %d bytes", len(body))
			}
			if kind == frameSnapshot || kind == frameResized {
				_, _, _, _ = readSize(body)
			}
			again = appendFrame(again, kind, body)
		}
		if !bytes.HasPrefix(in, again) {
			t.Errorf("frames of %x written as %x", in, again)
		}
	})
}

// A ring gives back what was written, or says that it no longer has it.
func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := ring{limit: rapid.IntRange(1, 40).Draw(t, "limit")}
		var all []byte
		at := int64(0)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				r.forget()
			case 1, 2, 3, 4:
				p := rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "write")
				all = append(all, p...)
				r.write(p)
			default:
				buf := make([]byte, rapid.IntRange(1, 30).Draw(t, "read"))
				n, ok := r.read(buf, at)
				if !ok {
					if r.start <= at {
						t.Fatalf("read(%d) is lost, kept from %d", at, r.start)
					}
					at = r.end
					continue
				}
				if !bytes.Equal(buf[:n], all[at:at+int64(n)]) {
					t.Fatalf("read(%d) = %x, want %x", at, buf[:n], all[at:at+int64(n)])
				}
				at += int64(n)
			}
			if r.end != int64(len(all)) || r.end-r.start > int64(r.limit) {
				t.Fatalf("ring holds [%d, %d) of %d, limit %d", r.start, r.end, len(all), r.limit)
			}
		}
	})
}
