// Package task has goroutines, the time and waiting, for code that runs over
// sockets and in a simulated network alike (package fabric/world).
//
// Over sockets these are Go's own. In a world a program is a coroutine, one
// runs at any moment, and the time is the world's: a goroutine that such a
// program starts by a go statement would run beside it, and time.Now reads a
// clock of another world. Code that takes both from the [Runner] of its device
// runs in either:
//
//	tasks := verbs.HCA(dev).Tasks()
//	over := tasks.NewEvent()
//	tasks.Go(func() {
//		defer over.Set()
//		…
//	})
//	begun := tasks.Now()
//	err := over.Wait(ctx)
//	took := tasks.Now().Sub(begun)
//
// What such code may use of Go as it is: mutexes that are given up before each
// wait, atomics, contexts. What it must not: channels between its tasks (but
// for what is there already), time.Now, context.WithTimeout, sync.WaitGroup.
package task
