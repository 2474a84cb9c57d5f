package wake

import (
	"math/rand/v2"
	"testing"
)

// Calls that wait for their own completions of one queue, by seeds: each gets
// what is there for it, one leads at a time, and nothing sleeps over what has
// come while none leads.
func TestCallers(t *testing.T) {
	t.Parallel()
	const calls = 5
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var (
			callers Callers[int]
			at      [calls]int // 0: awake, 1: leads, 2: follows
			has     [calls]bool
			awoken  [calls]bool
			served  [calls]int
			queue   []int // completions that nothing has taken
		)
		next := func() {
			if i, ok := callers.Next(); ok {
				awoken[i] = true
			}
		}
		step := func(i int) bool {
			switch {
			case at[i] == 0 && has[i]:
				has[i] = false
				served[i]++
				next()
			case at[i] == 0 && callers.Lead():
				at[i] = 1
			case at[i] == 0:
				callers.Follow(i)
				at[i] = 2
			case at[i] == 1 && len(queue) > 0:
				for _, j := range queue {
					has[j] = true
				}
				queue = nil
				for _, j := range callers.Followers() {
					awoken[j] = awoken[j] || has[j]
				}
				callers.Leave()
				at[i] = 0
			case at[i] == 2 && awoken[i]:
				callers.Unfollow(i)
				awoken[i] = false
				at[i] = 0
			default:
				return false
			}
			return true
		}
		come := 0
		for range 500 {
			if step(rng.IntN(calls)); rng.IntN(10) == 0 && len(queue) < calls {
				if j := rng.IntN(calls); !has[j] {
					queue = append(queue, j)
				}
			}
			leaders := 0
			for i := range at {
				if at[i] == 1 {
					leaders++
				}
			}
			if leaders > 1 || (leaders == 1) != callers.Leads() {
				t.Fatalf("seed %d: %d leaders, it says %v", seed, leaders, callers.Leads())
			}
		}
		for moved := true; moved && come < 1000; come++ {
			moved = false
			for i := range calls {
				moved = step(i) || moved
			}
		}
		if len(queue) > 0 || !callers.Leads() {
			t.Fatalf("seed %d: %d completions lie there, a call leads: %v", seed, len(queue), callers.Leads())
		}
		for i := range calls {
			if has[i] {
				t.Fatalf("seed %d: call %d sleeps over its completion", seed, i)
			}
		}
	}
}
