package verbstest

import "runtime"

// Heap returns how many bytes of the heap are in use, after a collection. A
// test that compares two of them does not run in parallel with others.
func Heap() uint64 {
	runtime.GC()
	runtime.GC() // what the first has finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
