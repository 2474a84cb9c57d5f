//go:build linux

package uverbs

import (
	"sync/atomic"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/transport"
)

// Requests counts the send requests that programs have posted, by operation.
// The zero value is ready for use.
type Requests struct {
	counts [mostOperations]struct{ requests, bytes atomic.Uint64 } // by what completions call them
}

// mostOperations is more than there are completions of send requests.
const mostOperations = 16

// add counts the first n of some requests. It returns the bytes of the longest
// of all. Requests of the same operation are added at once.
func (r *Requests) add(wrs []ib.SendWR, n int) (longest uint64) {
	var first int
	var bytes uint64
	for i := range wrs {
		size := ib.TotalLength(wrs[i].SGList) + uint64(len(wrs[i].Inline))
		longest = max(longest, size)
		if r == nil || i >= n {
			continue
		}
		bytes += size
		if op := wrs[i].Opcode; i == n-1 || wrs[i+1].Opcode != op {
			c := &r.counts[op.Completion()%mostOperations]
			c.requests.Add(uint64(i + 1 - first))
			c.bytes.Add(bytes)
			first, bytes = i+1, 0
		}
	}
	return longest
}

// Sum returns what was posted up to now.
func (r *Requests) Sum() (list []transport.UsedOperation) {
	for op := range r.counts {
		c := &r.counts[op]
		if n := c.requests.Load(); n > 0 {
			list = append(list, transport.UsedOperation{Operation: ib.WCOpcode(op).String(), Requests: n, Bytes: c.bytes.Load()})
		}
	}
	return list
}
