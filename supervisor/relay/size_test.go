package relay_test

import (
	"slices"
	"testing"

	"github.com/cotal-go/cotal/endpoint"
)

// TestLargestSize has a driver whose terminal is higher than that of an agent goes: the agent gets as much of it as it can.
func TestLargestSize(t *testing.T) {
	w := newWorld(t, nil)
	ada, _ := w.viewer(t, "ada")
	s := newStage(80, 24)
	v := open(t, ada, w.offer(t, ada, s, true, 200, 600), &endpoint.SessionOptions{Cols: 200, Rows: 600})
	s.until(t, "the size of the driver", func() bool { return slices.Equal(s.sizes, [][2]int{{200, 500}}) })
	if err := v.Resize(1000, 1000); err != nil {
		t.Fatal(err)
	}
	s.until(t, "the largest size", func() bool { return slices.Equal(s.sizes, [][2]int{{200, 500}, {1000, 500}}) })
}
