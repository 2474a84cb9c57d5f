package lab

import (
	"math/bits"
	"slices"

	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/rocev2"
)

// path is the cables between two hosts.
type path []hop

type hop struct {
	rate  int64 // bits per second
	delay Time
	cuts  bool // the switch at its end sends on what it has not received whole
}

// takes returns how long that many bytes on the wire take.
func (h hop) takes(bytes int) Time {
	hi, lo := bits.Mul64(uint64(bytes)*8, 1e12)
	q, _ := bits.Div64(hi, lo, uint64(h.rate))
	return Time(q)
}

// pathOf returns the cables of the first of the shortest ways between two
// hosts.
func (r *run) pathOf(src, dst int) path {
	key := int64(src)<<32 | int64(dst)
	if p, ok := r.paths[key]; ok {
		return p
	}
	var p path
	node, port := int32(src), uint16(0)
	for len(p) < 64 {
		at := r.g.Ports(node)[port]
		l := r.g.Link(at.Link)
		p = append(p, hop{rate: l.Rate, delay: Time(l.Delay)})
		if node = at.Peer; node == int32(dst) {
			break
		}
		next := r.tables.Next(node, int32(dst))
		if len(next) == 0 {
			p = nil
			break
		}
		port = next[0]
		// It stores what it may send faster than it comes.
		p[len(p)-1].cuts = r.s.Network.CutThrough && !slices.ContainsFunc(next, func(port uint16) bool {
			return r.g.Link(r.g.Ports(node)[port].Link).Rate > l.Rate
		})
	}
	r.paths[key] = p
	return p
}

// Bytes of headers around the payload of a packet.
const (
	ipBytes    = 20 + 8 + rocev2.BTHLen + rocev2.ICRCLen
	rethBytes  = rocev2.RETHLen
	aethBytes  = rocev2.AETHLen
	warmUpLong = 16 // packets until a pipeline of cables is full

	// headBytes is what a switch that cuts through waits for: preamble, and
	// the smallest frame.
	headBytes = 8 + 64
)

// padded returns the length of a payload with its pad.
func padded(n int) int { return (n + 3) &^ 3 }

// ideal returns how long a flow takes alone: its packets one after the other
// through all cables, stored and forwarded or cut through by each switch, and
// the last acknowledgement back. Of a READ it is the request there, and the
// data back.
func (r *run) ideal(f *Flow) Time {
	there, back := r.pathOf(f.Src, f.Dst), r.pathOf(f.Dst, f.Src)
	if len(there) == 0 || len(back) == 0 {
		return 0
	}
	mtu := r.mtu.Bytes()
	switch f.op {
	case opRead:
		return there.alone(network.WireSize(ipBytes+rethBytes)) + back.message(f.Bytes, mtu, aethBytes, aethBytes)
	case 0:
		return there.message(f.Bytes, mtu, rethBytes, 0) + back.alone(network.WireSize(ipBytes+aethBytes))
	default:
		return there.message(f.Bytes, mtu, 0, 0) + back.alone(network.WireSize(ipBytes+aethBytes))
	}
}

// send returns when a packet has arrived that is sent when the first cable is
// free; each cable then is when it has taken the packet.
func (p path) send(bytes int, free []Time) (at Time) {
	for i, h := range p {
		begin := max(at, free[i])
		free[i] = begin + h.takes(bytes)
		at = free[i] + h.delay
		if h.cuts && bytes > headBytes {
			at = begin + h.takes(headBytes) + h.delay
		}
	}
	return at
}

// alone returns how long one packet takes.
func (p path) alone(bytes int) Time { return p.send(bytes, make([]Time, len(p))) }

// message returns when the last packet of a message has arrived. The first and
// the last one of several have longer headers.
func (p path) message(bytes int64, mtu, first, final int) Time {
	last := max((bytes+int64(mtu)-1)/int64(mtu), 1) - 1
	if last == 0 {
		final = first
	}
	return p.train(bytes, mtu, func(payload int, packet int64) int {
		extra := 0
		switch packet {
		case last:
			extra = final
		case 0:
			extra = first
		}
		return network.WireSize(ipBytes + padded(payload) + extra)
	})
}

// train returns when the last of some packets has arrived that follow each
// other. size is how long one is on the wire, by its payload and its number.
func (p path) train(bytes int64, mtu int, size func(payload int, packet int64) int) Time {
	packets := max((bytes+int64(mtu)-1)/int64(mtu), 1)
	last := int(bytes - (packets-1)*int64(mtu))
	free := make([]Time, len(p)) // when each cable has taken what came before
	full := packets - 1
	for k := range min(full, warmUpLong) {
		p.send(size(mtu, k), free)
	}
	if full > warmUpLong { // from now on each follows the one before by its time on the slowest cable so far
		slowest := Time(0)
		for i, h := range p {
			slowest = max(slowest, h.takes(size(mtu, warmUpLong-1)))
			free[i] += Time(full-warmUpLong) * slowest
		}
	}
	return p.send(size(last, full), free)
}
