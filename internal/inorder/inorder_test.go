package inorder_test

import (
	"slices"
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/inorder"
)

func TestQueue(t *testing.T) {
	now := time.Unix(0, 0)
	var q inorder.Queue[int]
	var got []int
	take := func(v int) { got = append(got, v) }
	for i, n := range []int{1, 1, 3, 2, 2, 3, 6, 5} {
		q.Put(uint64(n), n, now.Add(time.Duration(i)), take)
	}
	if want := []int{1, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("handed on %v, want %v", got, want)
	}
	if since, missing := q.Missing(); !missing || !since.Equal(now.Add(6)) {
		t.Errorf("missing since %v, %v", since, missing)
	}
	q.Skip(now, take)
	if want := []int{1, 2, 3, 5, 6}; !slices.Equal(got, want) || q.Last() != 6 {
		t.Errorf("handed on %v, want %v", got, want)
	}
	if _, missing := q.Missing(); missing {
		t.Error("something is missing after all was handed on")
	}
	q.Skip(now, take)
	q.Reset()
	q.Put(2, 2, now, take)
	q.Put(1, 1, now, take)
	if want := []int{1, 2, 3, 5, 6, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("handed on %v, want %v", got, want)
	}
}

func TestQueueIsBounded(t *testing.T) {
	var q inorder.Queue[int]
	count := 0
	for n := uint64(2); n < 5000; n++ {
		q.Put(n, 0, time.Time{}, func(int) { count++ })
	}
	q.Put(1, 0, time.Time{}, func(int) { count++ })
	if count > 300 || count < 2 {
		t.Errorf("%d were kept", count)
	}
}
