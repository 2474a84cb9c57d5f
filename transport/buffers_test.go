package transport

import (
	"sync"
	"testing"
)

// A buffer is given to one goroutine at a time, and the pool keeps no more
// buffers than it has slots.
func TestBufferPool(t *testing.T) {
	var p bufferPool
	var wg sync.WaitGroup
	for id := range 4 {
		wg.Go(func() {
			var mine [20][]byte
			for range 200 {
				for i := range mine {
					mine[i] = p.get()
					mine[i][0], mine[i][RxBufferLen-1] = byte(id), byte(i)
				}
				for i, b := range mine {
					if b[0] != byte(id) || b[RxBufferLen-1] != byte(i) {
						t.Error("a buffer belongs to two")
					}
					p.put(b)
				}
			}
		})
	}
	wg.Wait()
	for range 100 {
		p.put(make([]byte, RxBufferLen))
	}
	kept := 0
	for i := range p.slots {
		if p.slots[i].Load() != nil {
			kept++
		}
	}
	if kept != len(p.slots) {
		t.Errorf("%d buffers in %d slots", kept, len(p.slots))
	}
	if n := testing.AllocsPerRun(100, func() { p.put(p.get()) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
