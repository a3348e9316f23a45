package field_test

import (
	"sync"
	"testing"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

func must[T any](v T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

func ok(tb testing.TB, what string, err error) {
	tb.Helper()
	if err != nil {
		tb.Errorf("%s: %v", what, err)
	}
}

// text is a draft of one text under an id.
func text(id, s string) endpoint.Draft {
	return endpoint.Draft{ID: id, Parts: []wire.Part{wire.Text(s)}}
}

// journal collects what handlers are given.
type journal[T any] struct {
	mu  sync.Mutex
	all []T
}

func (j *journal[T]) add(v T) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, v)
}

// take returns what was collected since the last take.
func (j *journal[T]) take() []T {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := j.all
	j.all = nil
	return all
}
