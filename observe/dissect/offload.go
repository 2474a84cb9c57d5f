package dissect

import "github.com/gosoftroce/rocev2/rocev2"

// Segmentation offload (UDP_SEGMENT of Linux) hands many packets to the network
// adapter in one buffer. A capture on the host shows the buffer: one datagram,
// longer than any packet. The adapter cuts it in pieces of equal size, of which
// only the last may be shorter. In IPv4 the Identification grows by one with
// each. Receive offload puts packets together in the same way.

// maxTries is how many sizes are tried for a datagram.
const maxTries = 64

// segmentSize returns the size of the pieces of a datagram, or 0 if it is a
// single packet. The first piece must have a right ICRC, so it must have been
// captured.
func (d *decoder) segmentSize(head, b []byte, length int, id uint16) int {
	tries := 0
	const shortest = rocev2.BTHLen + rocev2.ICRCLen
	for size := shortest; size <= rocev2.MaxPacketLen && size < length && size+4 <= len(b); size += 4 {
		// The next piece begins with a BTH, of the same partition.
		next := b[size:]
		if next[1]&15 != 0 || next[2] != b[2] || next[3] != b[3] {
			continue
		}
		if _, known := rocev2.Opcode(next[0]).Info(); !known {
			continue
		}
		if tries++; tries > maxTries {
			return 0
		}
		if d.verify(head, b[:size], id) {
			return size
		}
	}
	return 0
}

// segments decodes the pieces of a datagram of which b was captured.
func (d *decoder) segments(head, b []byte, length, size int, p *Packet, each func() error) error {
	size = max(size, 1)
	count := (length + size - 1) / size
	id := p.IP.ID
	for i := range count {
		start := i * size
		n := min(size, length-start)
		var captured []byte
		if start < len(b) {
			captured = b[start:min(len(b), start+n)]
		}
		d.one(p, head, captured, n, id+uint16(i))
		p.Segment, p.Segments = i+1, count
		if err := each(); err != nil {
			return err
		}
	}
	return nil
}
