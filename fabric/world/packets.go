package world

import "github.com/gosoftroce/rocev2/rocev2"

// packet is a packet under way.
type packet struct {
	data         []byte // BTH to ICRC, which is not computed
	trafficClass uint8
}

// packets are those under way, by handle.
type packets struct {
	all   []packet
	free  []uint32             // handles
	spare [len(sizes)][][]byte // memory, by its size
}

// sizes are those of the memory of packets, so that acknowledgements do not
// take that of data.
var sizes = [...]int{128, 1280, rocev2.MaxPacketLen}

// put stores a packet of n bytes, the first of which are data, and returns its
// handle.
func (p *packets) put(data []byte, n int, trafficClass uint8) uint32 {
	handle := uint32(len(p.all))
	if last := len(p.free) - 1; last >= 0 {
		handle = p.free[last]
		p.free = p.free[:last]
	} else {
		p.all = append(p.all, packet{})
	}
	b := p.memory(n)
	copy(b, data)
	p.all[handle] = packet{b[:n], trafficClass}
	return handle
}

func (p *packets) memory(n int) []byte {
	i := sizeOf(n)
	last := len(p.spare[i]) - 1
	if last < 0 {
		return make([]byte, sizes[i])
	}
	b := p.spare[i][last]
	p.spare[i] = p.spare[i][:last]
	return b
}

func sizeOf(n int) int {
	i := 0
	for sizes[i] < n {
		i++
	}
	return i
}

func (p *packets) at(handle uint32) *packet { return &p.all[handle] }

// release gives back a packet's handle and memory.
func (p *packets) release(handle uint32) {
	k := &p.all[handle]
	i := sizeOf(len(k.data))
	p.spare[i] = append(p.spare[i], k.data[:sizes[i]])
	p.all[handle] = packet{}
	p.free = append(p.free, handle)
}
