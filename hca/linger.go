package hca

import (
	"runtime"
	"sync/atomic"
)

// lingers is how many steps linger takes: some ten microseconds.
const lingers = 4096

// linger passes some time in which other threads see memory as it is, and lets
// other goroutines run. It looks at no clock: that may stand still.
func linger() {
	var n atomic.Uint32
	for range lingers {
		n.Add(1)
	}
	runtime.Gosched()
}
