package control_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/internal/faketime"
)

// TestHandlerContext compares the context of a handler with one of package context, looked at in every order.
func TestHandlerContext(t *testing.T) {
	type key struct{}
	for name, ask := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"alone":   func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} },
		"derived": func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithCancel(ctx) },
		"valued": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithValue(ctx, key{}, 1), func() {}
		},
		"bounded": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Hour)
		},
	} {
		for cause, happen := range map[string]func(cancelBase, end func()){
			"deadline": func(_, _ func()) { time.Sleep(time.Minute) },
			"base":     func(cancelBase, _ func()) { cancelBase() },
			"end":      func(_, end func()) { end() },
		} {
			for _, early := range []bool{false, true} {
				faketime.Test(t, func(t *testing.T) {
					base, cancelBase := context.WithCancel(context.Background())
					defer cancelBase()
					real, endReal := context.WithDeadline(base, time.Now().Add(time.Minute))
					lazy, endLazy := control.NewLazyContext(base, time.Now().Add(time.Minute))
					end := func() { endReal(); endLazy() }
					defer end()
					want, cancelWant := ask(real)
					defer cancelWant()
					if early {
						<-time.After(time.Second)
						select {
						case <-lazy.Done():
							t.Error("it ended before anything happened")
						default:
						}
					}
					if lazy.Err() != nil {
						t.Errorf("error before anything happened: %v", lazy.Err())
					}
					got, cancelGot := ask(lazy)
					defer cancelGot()
					happen(cancelBase, end)
					synctest.Wait()
					if got.Err() != want.Err() || context.Cause(got) != context.Cause(want) {
						t.Errorf("%s, %s: error %v, cause %v, want %v and %v", name, cause, got.Err(), context.Cause(got), want.Err(), context.Cause(want))
					}
					<-got.Done()
					gd, _ := got.Deadline()
					wd, _ := want.Deadline()
					if !gd.Equal(wd) {
						t.Errorf("deadline %v, want %v", gd, wd)
					}
				})
			}
		}
	}
}
