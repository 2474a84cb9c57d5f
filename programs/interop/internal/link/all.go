package link

import (
	"context"
	"sync"
)

// All calls f with 0 to n-1, each on a goroutine of its own, and returns the
// first error. It ends the context of the others when one fails.
func All(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for i := range n {
		wg.Go(func() {
			if err := f(ctx, i); err != nil {
				once.Do(func() { first = err })
				cancel(err)
			}
		})
	}
	wg.Wait()
	return first
}
