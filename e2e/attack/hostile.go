package attack

import (
	"math/rand/v2"
	"sync"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// hostile is a host without a device: it sends what it likes, and counts what
// comes.
type hostile struct {
	link transport.Link
	path *transport.Path

	// reply, if not nil, makes the answer to a packet, BTH to pad; nil is
	// none. It is set before anything comes.
	reply func(p *rocev2.Packet) []byte

	tx    *transport.TxBatch // belongs to the sender
	mu    sync.Mutex
	count answers
	wg    sync.WaitGroup
}

// answers counts packets that the hostile host has received.
type answers struct {
	packets   uint64
	acks      uint64
	naks      uint64 // of any kind, receiver not ready excepted
	rnr       uint64
	fatal     uint64 // of the NAKs: all but sequence errors
	responses uint64 // to READs and atomics
	requests  uint64
}

// hostile attaches a host that attacks the victim. One that is unread leaves
// what comes in its receive buffer: that costs the machine least.
func (l *lab) hostile(unread bool) *hostile {
	link, err := l.net.attach()
	check(err)
	h := &hostile{link: link, path: transport.NewPath(link.Addr(), transport.Path{Dst: l.victim.addr}),
		tx: transport.NewTxBatch(64 << 10)}
	l.closers = append(l.closers, func() error {
		err := link.Close()
		h.wg.Wait()
		return err
	})
	if !unread {
		h.wg.Add(1)
		go h.receive()
	}
	return h
}

func (h *hostile) receive() {
	defer h.wg.Done()
	b := transport.NewRxBatch(16)
	tx := transport.NewTxBatch(64 << 10)
	var p rocev2.Packet
	for h.link.Wait() == nil {
		for {
			n, err := h.link.Recv(b)
			if n == 0 || err != nil {
				break
			}
			h.mu.Lock()
			for _, d := range b.Packets() {
				if p.Parse(d.Data) != nil {
					continue
				}
				h.count.add(&p)
				if h.reply == nil {
					continue
				}
				if room := tx.Room(); room != nil {
					if answer := h.reply(&p); answer != nil {
						tx.Commit(copy(room, answer), h.path)
					}
				}
			}
			h.mu.Unlock()
			if tx.Len() > 0 {
				if h.link.Send(tx) != nil {
					return
				}
				tx.Reset()
			}
		}
	}
}

func (a *answers) add(p *rocev2.Packet) {
	a.packets++
	info, _ := p.BTH.Opcode.Info()
	switch s := p.AETH.Syndrome; {
	case info.Role == rocev2.RoleRequest:
		a.requests++
	case info.Operation != rocev2.OpAcknowledge:
		a.responses++
	case s.IsACK():
		a.acks++
	case s.IsRNR():
		a.rnr++
	default:
		a.naks++
		if s != rocev2.NAKSequence {
			a.fatal++
		}
	}
}

func (h *hostile) got() answers {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

// send sends packets, BTH to pad each.
func (h *hostile) send(packets ...[]byte) error {
	for len(packets) > 0 {
		h.tx.Reset()
		for len(packets) > 0 {
			room := h.tx.Room()
			if room == nil {
				break
			}
			h.tx.Commit(copy(room, packets[0]), h.path)
			packets = packets[1:]
		}
		if err := h.link.Send(h.tx); err != nil {
			return err
		}
	}
	return nil
}

// foe is a connection whose far end is a hostile host.
type foe struct {
	*hostile
	end *end // the victim's
	qpn verbs.QPN
	psn verbs.PSN // that the victim expects next
}

// foe connects a queue pair of the victim to h.
func (l *lab) foe(h *hostile, c endConfig) *foe {
	f := &foe{hostile: h, end: l.end(l.victim, c), qpn: verbs.QPN(rand.Uint32N(1<<24-32) + 16),
		psn: verbs.PSN(rand.Uint32N(1 << 24))}
	l.join(f.end, verbs.Endpoint{Addr: h.link.Addr(), QPN: f.qpn, PSN: f.psn, Native: true}, c)
	return f
}

// packet returns a packet with a PSN so far from the expected one.
func (f *foe) packet(op rocev2.Opcode, ahead int, change func(*rocev2.Packet)) []byte {
	return encode(op, f.end.qp.QPN(), f.psn.Add(ahead), change)
}

// encode returns a packet, BTH to pad.
func encode(op rocev2.Opcode, to verbs.QPN, psn verbs.PSN, change func(*rocev2.Packet)) []byte {
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: op, PKey: rocev2.DefaultPKey, DestQPN: to, PSN: psn}}
	if info, _ := op.Info(); info.Role == rocev2.RoleRequest {
		p.BTH.AckReq = true
	}
	if change != nil {
		change(&p)
	}
	return p.AppendTo(nil)
}

// read asks for n bytes from the start of a region.
func read(mr *verbs.MR, n uint32) func(*rocev2.Packet) {
	return func(p *rocev2.Packet) {
		p.RETH = rocev2.RETH{VA: mr.Addr(), RKey: uint32(mr.RKey()), Length: n}
	}
}

// payload makes a packet carry b.
func payload(b []byte) func(*rocev2.Packet) {
	return func(p *rocev2.Packet) { p.Payload = b }
}

// forged is the payload of messages that neither side of the connection has
// sent.
var forged = func() []byte {
	b := make([]byte, slotSize)
	for i := range b {
		b[i] = 0xee
	}
	return b
}()

// nextPSN is the next PSN that the end e sends.
func (e *end) nextPSN() verbs.PSN { return e.qp.Query().SQPSN }

// expects is the PSN that the end e expects next.
func (e *end) expects() verbs.PSN { return e.qp.Query().RQPSN }
