package qptest

import (
	"cmp"
	"hash/crc32"

	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// sniffer watches what one side sends and checks that it is what the rules of
// reliable connections allow (IBTA 9.7), whatever happened to it on the way.
type sniffer struct {
	w     *world
	s     *side
	first rocev2.PSN // of all requests
	next  rocev2.PSN // of the next new request packet
	acked rocev2.PSN // the highest PSN that an arrived response can have acknowledged
	sent0 [historyLen]sentPacket

	message rocev2.Operation // the unfinished one, 0: none
	left    int              // bytes that the unfinished WRITE still has to send
	split   rocev2.RETH      // what the next message of a split WRITE must have; Length is what is left

	reads []sentRead // READ and atomic requests

	op    int          // the request of the model that the next new packet belongs to
	opEnd rocev2.PSN   // its end
	ends  []rocev2.PSN // last PSNs of all messages, in order

	seen rocev2.PSN          // the highest request PSN that arrived at this side
	any  bool                // a request has arrived
	got  map[rocev2.PSN]bool // requests that have
	msn  rocev2.PSN
}

const historyLen = 1 << 12

// sentPacket is what a retransmission must repeat.
type sentPacket struct {
	psn    rocev2.PSN
	opcode rocev2.Opcode
	n      int
	sum    uint32
	srqn   uint32 // XRC
	read   int    // index of its READ or atomic, from 1
}

type sentRead struct {
	first, last rocev2.PSN
	opcode      rocev2.Opcode
	reth        rocev2.RETH
	atomic      rocev2.AtomicETH
	feth        rocev2.FETH
	data        string // of an ATOMIC WRITE
	answered    bool   // its last response has arrived: it may be done
}

func newSniffer(w *world, s *side, psn rocev2.PSN) *sniffer {
	return &sniffer{w: w, s: s, first: psn, next: psn, acked: psn.Add(-1), op: -1, opEnd: psn, got: map[rocev2.PSN]bool{}}
}

func (f *sniffer) sent(p *rocev2.Packet) {
	info, ok := p.BTH.Opcode.Info()
	if !ok {
		f.w.fail("%s sends unknown opcode %v", f.s.name, p.BTH.Opcode)
	}
	if p.BTH.DestQPN != f.s.peer.ep.qpn || p.BTH.PKey != rocev2.DefaultPKey || p.BTH.MigReq || p.BTH.Reserved7 != 0 {
		f.w.fail("%s sends a wrong BTH: %+v", f.s.name, p.BTH)
	}
	f.checkHalf(p, info)
	// FIRST and MIDDLE are full, LAST has at least a byte (IBTA 9.7.4.1.6).
	if !info.Payload.Allows(len(p.Payload), f.w.p.mtu.Bytes()) {
		f.w.fail("%s sends %v with %d bytes at mtu %d", f.s.name, p.BTH.Opcode, len(p.Payload), f.w.p.mtu.Bytes())
	}
	switch info.Role {
	case rocev2.RoleResponse:
		f.response(p, info)
		return
	case rocev2.RoleNotify:
		f.notice(p)
		return
	}
	// Only what completes a receive asks for an event (IBTA 11.4.2.2).
	if p.BTH.Solicited && (!info.Last || info.Operation != rocev2.OpSend && !info.WithImm) {
		f.w.fail("%s sends %v with the solicited bit", f.s.name, p.BTH.Opcode)
	}
	switch d := p.BTH.PSN.Sub(f.next); {
	case d > 0:
		f.w.fail("%s sends PSN %v and skips %d", f.s.name, psnString(p.BTH.PSN), d)
	case d == 0:
		f.fresh(p, info)
	default:
		f.again(p, info)
	}
}

// fresh checks a request packet that was never sent before.
func (f *sniffer) fresh(p *rocev2.Packet, info *rocev2.OpcodeInfo) {
	// The packets of a message are in sequence (IBTA 9.7.4.1.3).
	if info.First == (f.message != 0) || !info.First && info.Operation != f.message {
		f.w.fail("%s sends %v in the middle of %v", f.s.name, p.BTH.Opcode, f.message)
	}
	f.checkRequest(p, info)
	f.checkNamed(p)
	f.message = info.Operation
	if info.Last {
		f.message = 0
		if !p.BTH.AckReq && !f.goesOn(p, info) {
			f.w.fail("%s ends a message with %v without asking for an acknowledgement", f.s.name, p.BTH.Opcode)
		}
	}
	if info.Operation == rocev2.OpWrite {
		if info.First {
			f.left = int(p.RETH.Length)
			f.checkSplit(p, info)
		}
		f.left -= len(p.Payload)
		if f.left < 0 || info.Last && f.left != 0 {
			f.w.fail("%s ends a WRITE with %d bytes left", f.s.name, f.left)
		}
	}
	n := 1
	e := &f.sent0[p.BTH.PSN%historyLen]
	*e = sentPacket{psn: p.BTH.PSN, opcode: p.BTH.Opcode, n: len(p.Payload), sum: crc32.ChecksumIEEE(p.Payload), srqn: p.XRCETH.SRQN}
	// A READ takes the PSNs of all its responses (IBTA 9.4.4).
	if info.Operation == rocev2.OpReadRequest {
		f.checkPair(p)
		n = max(1, (int(p.RETH.Length)+f.w.p.mtu.Bytes()-1)/f.w.p.mtu.Bytes())
	}
	if answered(info.Operation) {
		f.reads = append(f.reads, sentRead{first: p.BTH.PSN, last: p.BTH.PSN.Add(n - 1), opcode: p.BTH.Opcode, reth: p.RETH,
			atomic: p.AtomicETH, feth: p.FETH, data: string(p.Payload)})
		for i := range n {
			f.sent0[p.BTH.PSN.Add(i)%historyLen] = sentPacket{psn: p.BTH.PSN.Add(i), opcode: p.BTH.Opcode, read: len(f.reads), srqn: p.XRCETH.SRQN}
		}
		f.checkDepth()
	}
	f.next = f.next.Add(n)
	if info.Last {
		f.ends = append(f.ends, f.next.Add(-1))
	}
	most := f.s.config.Window.MaxPSNs
	if most == 0 {
		most = 128
	}
	if inFlight := f.next.Sub(f.acked) - 1; inFlight > most && inFlight > n {
		f.w.fail("%s has %d PSNs in flight, %d are allowed", f.s.name, inFlight, most)
	}
}

// goesOn reports whether a packet is a message of a split WRITE that more of
// them follow.
func (f *sniffer) goesOn(p *rocev2.Packet, info *rocev2.OpcodeInfo) bool {
	return info.Operation == rocev2.OpWrite && info.First && p.BTH.PSN.Next() != f.opEnd
}

// checkSplit checks that a message begins a WRITE, with all of its length or as
// a part that others follow, or is the next part. Only native peers get parts.
func (f *sniffer) checkSplit(p *rocev2.Packet, info *rocev2.OpcodeInfo) {
	o := f.s.ops[f.op]
	n := (o.n + f.w.p.mtu.Bytes() - 1) / f.w.p.mtu.Bytes()
	switch {
	case n <= 1 || !info.Last: // whole
		if int(p.RETH.Length) != o.n {
			f.w.fail("%s sends WRITE %d of %d bytes as one of %d", f.s.name, f.op, o.n, p.RETH.Length)
		}
		return
	case !f.s.native:
		f.w.fail("%s splits WRITE %d, and the peer is not native", f.s.name, f.op)
	case p.BTH.PSN == f.opEnd.Add(-n):
		f.split = rocev2.RETH{VA: p.RETH.VA, RKey: p.RETH.RKey, Length: uint32(o.n)}
	}
	want := f.split
	want.Length = min(want.Length, uint32(f.w.p.mtu.Bytes()))
	if p.RETH != want {
		f.w.fail("%s sends a part of WRITE %d with %+v, not %+v", f.s.name, f.op, p.RETH, want)
	}
	f.split.VA += uint64(want.Length)
	f.split.Length -= want.Length
	f.w.tally.split++
}

// checkPair counts the parts of READs that ask for two packets, though one that
// is not split may ask for more.
func (f *sniffer) checkPair(p *rocev2.Packet) {
	mtu := f.w.p.mtu.Bytes()
	if int(p.RETH.Length) != 2*mtu || f.s.ops[f.op].n <= 2*mtu || f.s.config.ReadChunk > 0 && f.s.config.ReadChunk < 3*mtu {
		return
	}
	if !f.s.native && p.BTH.PSN != f.opEnd.Add(-2) {
		f.w.fail("%s splits READ %d, and the peer is not native", f.s.name, f.op)
	}
	f.w.tally.pairs++
}

// checkRequest finds the request that a new packet belongs to, and checks its
// opcode and its fence.
func (f *sniffer) checkRequest(p *rocev2.Packet, info *rocev2.OpcodeInfo) {
	if p.BTH.PSN != f.opEnd {
		return // goes on with the same request
	}
	if f.op++; f.op >= len(f.s.ops) {
		f.w.fail("%s starts request %d before it was posted", f.s.name, f.op)
	}
	o, mtu := f.s.ops[f.op], f.w.p.mtu.Bytes()
	f.opEnd = p.BTH.PSN.Add(max(1, (o.n+mtu-1)/mtu))
	if info.Operation != kindOperations[o.kind] {
		f.w.fail("%s sends %v for request %d, %v", f.s.name, p.BTH.Opcode, f.op, kindOpcodes[o.kind])
	}
	// A fenced request waits for all READs and atomics (IBTA 10.8.3.3).
	for i := range f.reads {
		if o.fence && !f.reads[i].answered {
			f.w.fail("%s starts the fenced request %d and a READ or atomic before it is not done", f.s.name, f.op)
		}
	}
	// No request starts in SQD (IBTA 10.3.1.5).
	if f.s.sqd == sqdDrained {
		f.w.fail("%s starts request %d in SQD", f.s.name, f.op)
	}
}

var kindOperations = [numKinds]rocev2.Operation{
	rocev2.OpSend, rocev2.OpSend, rocev2.OpSend, rocev2.OpWrite, rocev2.OpWrite,
	rocev2.OpReadRequest, rocev2.OpCompareSwap, rocev2.OpFetchAdd, rocev2.OpAtomicWrite, rocev2.OpFlush,
}

// answered reports whether an operation has a response of its own.
func answered(op rocev2.Operation) bool {
	switch op {
	case rocev2.OpReadRequest, rocev2.OpCompareSwap, rocev2.OpFetchAdd, rocev2.OpAtomicWrite, rocev2.OpFlush:
		return true
	}
	return false
}

// messages counts the messages that ended up to a PSN.
func (f *sniffer) messages(psn rocev2.PSN) int {
	n := len(f.ends)
	for n > 0 && f.ends[n-1].After(psn) {
		n--
	}
	return n
}

// checkDepth checks the number of READs and atomics that cannot be done yet
// because their last response has not arrived.
func (f *sniffer) checkDepth() {
	open := 0
	for i := range f.reads {
		if !f.reads[i].answered {
			open++
		}
	}
	if open > f.s.rdLimit {
		f.w.fail("%s has %d READs and atomics outstanding, %d are allowed", f.s.name, open, f.s.rdLimit)
	}
}

// again checks a retransmission against the first transmission.
func (f *sniffer) again(p *rocev2.Packet, info *rocev2.OpcodeInfo) {
	e := &f.sent0[p.BTH.PSN%historyLen]
	if e.psn != p.BTH.PSN || p.BTH.PSN.Before(f.first) {
		f.w.fail("%s sends PSN %v again, which it never sent or long ago", f.s.name, psnString(p.BTH.PSN))
	}
	if e.opcode != p.BTH.Opcode || e.read == 0 && (e.n != len(p.Payload) || e.sum != crc32.ChecksumIEEE(p.Payload)) {
		f.w.fail("%s sends PSN %v again as %v of %d bytes, not %v of %d, or with other bytes", f.s.name, psnString(p.BTH.PSN), p.BTH.Opcode, len(p.Payload), e.opcode, e.n)
	}
	if p.XRCETH.SRQN != e.srqn {
		f.w.fail("%s sends PSN %v again for queue %#x, not %#x", f.s.name, psnString(p.BTH.PSN), p.XRCETH.SRQN, e.srqn)
	}
	if e.read == 0 {
		return
	}
	r := &f.reads[e.read-1]
	if info.Operation == rocev2.OpAtomicWrite || info.Operation == rocev2.OpFlush {
		if r.reth != p.RETH || r.feth != p.FETH || r.data != string(p.Payload) {
			f.w.fail("%s repeats %v with other arguments", f.s.name, p.BTH.Opcode)
		}
		return
	}
	if info.Operation != rocev2.OpReadRequest {
		if r.atomic.VA != p.AtomicETH.VA || r.atomic.SwapAdd != p.AtomicETH.SwapAdd || r.atomic.RKey != p.AtomicETH.RKey {
			f.w.fail("%s repeats an atomic with other arguments", f.s.name)
		}
		return
	}
	// A READ may be asked for again from any of its packets (IBTA 9.4.4).
	skipped := p.BTH.PSN.Sub(r.first) * f.w.p.mtu.Bytes()
	if p.RETH.RKey != r.reth.RKey || p.RETH.VA != r.reth.VA+uint64(skipped) || int(p.RETH.Length) > max(int(r.reth.Length)-skipped, 0) {
		f.w.fail("%s resumes a READ of %+v at packet %d with %+v", f.s.name, r.reth, p.BTH.PSN.Sub(r.first), p.RETH)
	}
}

// notice checks a congestion notification: there is one for a marked packet
// with data (IBTA A17.9), and not more than one in an interval.
func (f *sniffer) notice(p *rocev2.Packet) {
	if p.BTH.AckReq || p.BTH.Solicited || p.BTH.PSN != 0 || !p.BTH.BECN || p.CNP != [rocev2.CNPLen]byte{} {
		f.w.fail("%s sends a wrong CNP: %+v", f.s.name, p)
	}
	st := f.s.ep.Stats()
	every := clock.Time(cmp.Or(f.s.config.NotifyInterval, qp.DefaultNotifyInterval))
	if st.CNPsSent > st.ECNMarked || every > 0 && st.CNPsSent > 1+uint64(f.w.now/every) {
		f.w.fail("%s sends %d CNPs in %s, and %d packets were marked", f.s.name, st.CNPsSent, duration(f.w.now), st.ECNMarked)
	}
}

// response checks a packet that the responder of this side sent.
func (f *sniffer) response(p *rocev2.Packet, info *rocev2.OpcodeInfo) {
	// Of all responses a selective acknowledgement alone is solicited.
	if p.BTH.AckReq || p.BTH.Solicited != (info.Operation == rocev2.OpSelectiveAck) {
		f.w.fail("%s sends a response with flags: %+v", f.s.name, p.BTH)
	}
	if !f.any {
		f.w.fail("%s responds and nothing has arrived", f.s.name)
	}
	// What was put off has arrived, and is asked for again.
	again := info.Operation == rocev2.OpAcknowledge && p.AETH.Syndrome == rocev2.NAKSequence && f.s.ep.Stats().Drops.RdAtomic == 0
	if d := p.BTH.PSN.Sub(f.seen); d > 0 || d == 0 && again {
		f.w.fail("%s sends %v for PSN %v, and no more than %v has arrived", f.s.name, p.BTH.Opcode, psnString(p.BTH.PSN), psnString(f.seen))
	}
	if info.Operation == rocev2.OpSelectiveAck {
		f.selective(p)
	}
	if info.Headers.Has(rocev2.HasAETH) {
		if p.AETH.MSN.Before(f.msn) {
			f.w.fail("%s counts its messages back from %v to %v", f.s.name, f.msn, p.AETH.MSN)
		}
		f.msn = p.AETH.MSN
		// A NAK, and each READ response but the last, stands for what
		// is before it only (IBTA 9.7.5.1.2).
		done := p.BTH.PSN
		if !p.AETH.Syndrome.IsACK() || info.Operation == rocev2.OpSelectiveAck || info.Operation == rocev2.OpReadResponse && !info.Last {
			done = done.Add(-1)
		}
		peer := f.s.peer.wire
		if least, most := peer.messages(done), peer.messages(f.seen); int(f.msn) < least || int(f.msn) > most {
			f.w.fail("%s says that %d messages are done with PSN %v; %d to %d are", f.s.name, f.msn, psnString(p.BTH.PSN), least, most)
		}
	}
}

// selective checks a selective acknowledgement: the packet at its PSN is
// missing, and all that it names have come.
func (f *sniffer) selective(p *rocev2.Packet) {
	for i := range 8 * len(p.Payload) {
		if psn := p.BTH.PSN.Add(1 + i); p.Payload[i/8]>>(i%8)&1 != 0 && !f.got[psn] {
			f.w.fail("%s says that it keeps PSN %v, which has not arrived", f.s.name, psnString(psn))
		}
	}
}

// arrived looks at a packet that reached this side.
func (f *sniffer) arrived(p *rocev2.Packet) {
	info, ok := p.BTH.Opcode.Info()
	if !ok || info.Role == rocev2.RoleNotify {
		return
	}
	last := p.BTH.PSN
	if info.Role == rocev2.RoleRequest {
		if info.Operation == rocev2.OpReadRequest {
			last = last.Add(max(1, (int(p.RETH.Length)+f.w.p.mtu.Bytes()-1)/f.w.p.mtu.Bytes()) - 1)
		}
		f.got[p.BTH.PSN] = true
		if !f.any || last.After(f.seen) {
			f.seen, f.any = last, true
		}
		return
	}
	if info.Operation == rocev2.OpSelectiveAck || info.Operation == rocev2.OpAcknowledge && !p.AETH.Syndrome.IsACK() {
		last = last.Add(-1)
	}
	// A response stands for all requests before it (IBTA 9.7.5.1.2).
	if last.After(f.acked) && last.Before(f.next) {
		f.acked = last
	}
	if info.Operation == rocev2.OpAcknowledge || info.Operation == rocev2.OpSelectiveAck || !info.Last {
		return
	}
	for i := range f.reads {
		if r := &f.reads[i]; r.last == p.BTH.PSN {
			r.answered = true
		}
	}
}
