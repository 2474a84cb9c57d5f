package adapter

import (
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Script is what is to become of packets of data of a connection, by their
// places in it.
type Script struct {
	first      rocev2.PSN
	lose, mark map[int]bool
	from, to   *QP // the requester, and its peer
}

// receiverOf is the queue pair that packets are for.
type receiverOf struct {
	host uint16
	qpn  rocev2.QPN
}

// MaxScripted is above all places that Script knows.
const MaxScripted = 1 << 23

// Script says that packets of data that q asks for to be moved, by WRITE, SEND
// or READ, are lost on the cable of the host that sends them, or leave it with
// congestion experienced: each the first time that it is sent. They are counted
// from 0 on in the order of their PSNs. It is called before anything is posted.
func (q *QP) Script(lose, mark []int) *Script {
	s := &Script{first: qp.FlowOf(q.Core()).Una, lose: set(lose), mark: set(mark), from: q, to: q.peer}
	s.put(q.h, q.peer)
	s.put(q.peer.h, q)
	return s
}

// put has a host follow a script in what it sends to a queue pair.
func (s *Script) put(h *Host, to *QP) {
	if h.scripts == nil {
		h.scripts = map[receiverOf]*Script{}
	}
	h.scripts[to.receiver()] = s
}

func (q *QP) receiver() receiverOf { return receiverOf{q.h.number, q.QPN()} }

func set(list []int) map[int]bool {
	m := make(map[int]bool, len(list))
	for _, i := range list {
		m[i] = true
	}
	return m
}

// Unsent returns how many of the packets have not been sent.
func (s *Script) Unsent() int { return len(s.lose) + len(s.mark) }

// forget takes what a script says of a queue pair that is closed away from its
// own host.
func (q *QP) forget() {
	if q.peer == nil {
		return
	}
	if s := q.h.scripts[q.peer.receiver()]; s != nil && (s.from == q || s.to == q) {
		delete(q.h.scripts, q.peer.receiver())
	}
}

// follow does with a packet what a script says. Requests and responses with
// data have the PSNs of the requester.
func (h *Host) follow(data []byte, p *network.Packet) {
	s := h.scripts[receiverOf{p.Dst, rocev2.QPN(be24(data[5:]))}]
	if s == nil {
		return
	}
	info, _ := rocev2.Opcode(data[0]).Info()
	switch info.Operation {
	case rocev2.OpWrite, rocev2.OpSend:
		if s.from.h != h {
			return
		}
	case rocev2.OpReadResponse:
		if s.to.h != h {
			return
		}
	default:
		return
	}
	i := rocev2.PSN(be24(data[9:])).Sub(s.first)
	if s.lose[i] {
		delete(s.lose, i)
		p.Flags |= network.Lose
	} else if s.mark[i] {
		delete(s.mark, i)
		p.ECN = network.CE
	}
}

func be24(b []byte) uint32 { return uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2]) }
