package hca

import (
	"encoding/binary"
	"errors"

	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

// bulkPackets at once are a bulk transfer.
const bulkPackets = 8

// recv takes one batch from the link and returns the number of its packets. The
// caller holds rxMu and not the shard's lock.
func (s *shard) recv() int {
	n, err := s.link.Recv(s.rx)
	if errors.Is(err, transport.ErrClosed) {
		linkClosed(s) // a program that polls never waits for the link
		return 0
	}
	if err != nil || s.portError {
		s.setPortState(err)
	}
	if err != nil {
		return 0
	}
	return n
}

// portChanged raises the event for what has changed at the port.
func (h *eventHub) portChanged(c transport.PortChange) {
	switch c {
	case transport.PortWentDown:
		h.broadcast(ib.EventPortError)
	case transport.PortCameUp:
		h.broadcast(ib.EventPortActive)
	case transport.PortAddrChanged:
		h.broadcast(ib.EventGIDChange)
	}
}

// setPortState raises an event when the link begins to fail to receive, or
// ceases to. The caller holds rxMu.
func (s *shard) setPortState(err error) {
	switch failed := err != nil; {
	case failed == s.portError:
		return
	case failed:
		s.events.broadcast(ib.EventPortError)
	default:
		s.events.broadcast(ib.EventPortActive)
	}
	s.portError = !s.portError
}

// waitLink blocks until the link may have something. An error says that it is
// closed.
func (s *shard) waitLink() error {
	err := s.link.Wait()
	if err != nil {
		linkClosed(s)
	}
	return err
}

// linkClosed is called when the link is closed. If the device is not, something
// else has closed it: then the device has failed (IBTA 11.6.3.1). Its queue
// pairs go to the error state, so that what programs have posted completes.
func linkClosed(s *shard) {
	s.lock()
	closed := s.closed
	s.unlock()
	if closed || s.failed.Swap(true) {
		return
	}
	for _, t := range s.shards {
		t.lock()
		if !t.closed {
			engine.Fail(t.eng)
		}
		t.unlock()
	}
	s.events.broadcast(ib.EventDeviceFatal)
	close(s.broken)
}

// handle has the engine handle the batch that recv has taken, after what other
// shards have forwarded. The caller holds rxMu and the shard's lock.
func (s *shard) handle() (r engine.Received, now clock.Time) {
	if s.closed {
		return r, 0
	}
	s.handleForwarded()
	packets := s.rx.Packets()
	if s.rx.Len() >= bulkPackets && s.spin > 1 {
		s.bulk.Store(true)
	}
	now = s.now()
	placed := engine.ReceivePlaced(s.eng, now, s.rx.Placed())
	r = s.eng.Receive(now, packets)
	r.Add(&placed)
	if r.Requests && !s.asked.Load() {
		s.asked.Store(true)
	}
	s.forward(r.Misrouted)
	s.distribute(r.Multicast)
	s.rx.Reset() // gives back what a burst has taken
	return r, now
}

// handleForwarded has the engine handle what other shards have forwarded. The
// caller holds the shard's lock.
func (s *shard) handleForwarded() {
	packets := s.forwarded.take()
	if len(packets) == 0 {
		return
	}
	if !s.closed {
		s.forward(s.eng.Receive(s.now(), packets).Misrouted)
	}
	s.forwarded.done()
}

// forward gives packets to the shards that they belong to. It queues them
// there; the goroutine of that shard handles them and sends the answers. It is
// the only way from one shard to another. The caller may hold a shard's lock.
func (s *shard) forward(packets []transport.RxPacket) {
	for i := range packets {
		t := s.shardOf(destQPN(packets[i].Data))
		switch {
		case t == nil:
			transport.HandOver(s.link, &packets[i])
		case t.forwarded.put(&packets[i]):
			t.kickTransmitter()
		}
	}
}

// shardOf returns the shard of a queue pair with a number, nil if that is of
// another device with the same address. The management queue pair is of each of
// them.
func (s *shared) shardOf(n rocev2.QPN) *shard {
	i := int(n)&(s.slots-1) - s.slot
	switch {
	case i >= 0 && i < len(s.shards):
		return s.shards[i]
	case n == engine.GSIQPN:
		return s.shards[0]
	}
	return nil
}

// destQPN reads the destination from a packet that has parsed.
func destQPN(b []byte) rocev2.QPN {
	return rocev2.QPN(binary.BigEndian.Uint32(b[4:])) & rocev2.QPNMask
}
