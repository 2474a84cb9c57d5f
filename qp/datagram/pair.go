package datagram

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Pair is both halves of an unreliable service.
type Pair struct {
	c    *conn.Conn
	Send Sender
	UC   *UCReceiver // of UC; else nil
	UD   *UDReceiver // of UD; else nil
}

// Init makes both halves of c, which is in RESET.
func (p *Pair) Init(c *conn.Conn, s Config, r ReceiverConfig) {
	p.c = c
	p.Send.Init(c, s)
	if s.Type == ib.UC {
		p.UC = new(UCReceiver)
		p.UC.Init(c, r)
		return
	}
	p.UD = new(UDReceiver)
	p.UD.Init(c, r)
}

// HandleRequest takes a packet of the peer of UC. A congestion notification is
// counted: nothing is in flight that could become less.
func (p *Pair) HandleRequest(a *conn.Arrival, info *rocev2.OpcodeInfo) conn.Drop {
	switch {
	case p.c.Failed():
		return conn.DropState
	case info.Role == rocev2.RoleNotify:
		p.c.Stats.Rare().CNPsReceived++
		return conn.DropNone
	}
	return p.UC.HandleRequest(a, info)
}

// HandleDatagram takes a datagram from any sender. It may be for a group that
// the queue pair is in (IBTA 10.5.2).
func (p *Pair) HandleDatagram(a *conn.Arrival, info *rocev2.OpcodeInfo) conn.Drop {
	h := &a.Packet.BTH
	switch {
	case h.DestQPN != p.c.QPN && h.DestQPN != rocev2.MulticastQPN:
		return conn.DropQPN
	case info.Role != rocev2.RoleRequest: // a CNP: it does not say whose datagrams it is about
		return conn.DropService
	case h.PKey&0x7fff != rocev2.DefaultPKey&0x7fff:
		return conn.DropPKey
	case p.c.Failed():
		return conn.DropState
	}
	return p.UD.HandleRequest(a, info)
}

// Flush completes the way to ERR, if a half has just ended the connection: both
// queues are flushed, sends first.
func (p *Pair) Flush() {
	why := p.c.TakeEnd()
	if why == conn.EndNone {
		return
	}
	p.Send.Flush()
	p.receiver().Flush(why)
}

// PostRecv queues a receive, see conn.Receives.
func (p *Pair) PostRecv(wr *ib.RecvWR) error { return p.receiver().Post(wr) }

// Drain flushes some of what a source of its own has in ERR, see conn.Receives.
func (p *Pair) Drain() (more bool) { return p.receiver().Drain() }

func (p *Pair) receiver() *receiver {
	if p.UC != nil {
		return &p.UC.receiver
	}
	return &p.UD.receiver
}
