package transport

import "sync/atomic"

// rxBuffers has the receive buffers that no batch uses, for all batches.
var rxBuffers bufferPool

// bufferPool keeps some buffers of RxBufferLen bytes. It has no lock: a buffer
// belongs to the goroutine that takes it out of its slot. The zero pool is
// empty.
type bufferPool struct {
	slots [32]atomic.Pointer[[RxBufferLen]byte]
}

// get returns a buffer, a new one if the pool has none.
func (p *bufferPool) get() []byte {
	for i := range p.slots {
		if p.slots[i].Load() == nil {
			continue
		}
		if b := p.slots[i].Swap(nil); b != nil {
			return b[:]
		}
	}
	return make([]byte, RxBufferLen)
}

// put takes a buffer back, unless the pool is full.
func (p *bufferPool) put(buf []byte) {
	for i := range p.slots {
		if p.slots[i].CompareAndSwap(nil, (*[RxBufferLen]byte)(buf)) {
			return
		}
	}
}
