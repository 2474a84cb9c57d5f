package cm

import (
	"errors"
	"fmt"

	"github.com/gosoftroce/rocev2/verbs"
)

const (
	madLen = 256 // bytes of every management datagram (IBTA 13.4.2)
	gsiQPN = 1

	recvSlots  = 4096 // datagrams that may wait: 40 ms of a flood, if the system lets us wait
	recvStep   = 512  // receives are posted that many at a time: all of them when there is a crowd
	sendSlots  = 256
	pollRounds = 8 // of 32 datagrams each, before what they call for is sent

	// maxHandles bounds the address handles that are kept. One in a million
	// datagrams makes no difference; a flood from many addresses costs only
	// work.
	maxHandles = 256
)

// gsi is the management queue pair of a device, with its buffers.
type gsi struct {
	pd *verbs.PD
	cq *verbs.CQ
	qp *verbs.QP

	mr    *verbs.MR // receive slots, then send slots
	slots int       // receive slots that are posted
	free  []uint16  // send slots

	handles map[verbs.AddressVector]*verbs.AddressHandle
	batch   []verbs.SendWR
	sges    []verbs.SGE

	lost bool // the queue pair is in the error state: the device has failed
}

const recvSlotLen = verbs.GRHLen + madLen

// newGSI makes the queue pair, in RTS with receives posted. handler is called
// when it has completions, and when it is closed.
func newGSI(dev *verbs.Device, handler func(open bool)) (*gsi, error) {
	g := &gsi{handles: map[verbs.AddressVector]*verbs.AddressHandle{}, free: make([]uint16, 0, sendSlots)}
	for i := range sendSlots {
		g.free = append(g.free, uint16(i))
	}
	if err := g.open(dev, handler); err != nil {
		g.close()
		if errors.Is(err, verbs.ErrGSIInUse) {
			return nil, fmt.Errorf("cm: device %v: the program has made the management queue pair itself, which package cm needs: %w", dev.Addr(), err)
		}
		return nil, fmt.Errorf("cm: device %v: make the management queue pair: %w", dev.Addr(), err)
	}
	return g, nil
}

func (g *gsi) open(dev *verbs.Device, handler func(open bool)) (err error) {
	if g.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	// What no datagram has come into takes no memory of the system.
	if g.mr, err = g.pd.RegisterMemory(make([]byte, recvSlots*recvSlotLen+sendSlots*madLen), verbs.LocalWrite); err != nil {
		return err
	}
	if g.cq, err = dev.CreateCQ(recvSlots+sendSlots, verbs.WithHandler(handler)); err != nil {
		return err
	}
	g.qp, err = g.pd.CreateQP(verbs.QPConfig{Type: verbs.GSI, SendCQ: g.cq, RecvCQ: g.cq,
		MaxSendWR: sendSlots, MaxRecvWR: recvSlots, MaxSendSGE: 1, MaxRecvSGE: 1})
	if err != nil {
		return err
	}
	if err = g.qp.Init(); err != nil {
		return err
	}
	if err = g.grow(); err != nil {
		return err
	}
	return g.qp.Activate(0)
}

func (g *gsi) close() {
	if g.qp != nil {
		g.qp.Close()
	}
	if g.cq != nil {
		g.cq.Close()
	}
	for _, h := range g.handles {
		h.Close()
	}
	if g.pd != nil {
		g.pd.Close()
	}
}

// grow posts the next step of receives, if there is one.
func (g *gsi) grow() error {
	if g.slots == recvSlots {
		return nil
	}
	var (
		wrs  [64]verbs.RecvWR
		sges [len(wrs)]verbs.SGE
	)
	for range recvStep / len(wrs) {
		for i := range wrs {
			id := g.slots + i
			sges[i] = g.receiveSlot(id)
			wrs[i] = verbs.RecvWR{ID: uint64(id), SGList: sges[i : i+1]}
		}
		if err := g.qp.PostRecv(wrs[:]...); err != nil {
			return err
		}
		g.slots += len(wrs)
	}
	return nil
}

// receiveSlot is the memory of a receive.
func (g *gsi) receiveSlot(id int) verbs.SGE {
	return g.mr.Slice(id*recvSlotLen, recvSlotLen)
}

func (g *gsi) receive(slot uint64) error {
	return g.qp.PostRecv(verbs.RecvWR{ID: slot, SGList: []verbs.SGE{g.receiveSlot(int(slot))}})
}

// poll takes what has completed, and calls receive for each datagram. Buffers
// are posted again at once. So datagrams may come as fast as they are taken:
// poll ends after some, and reports whether there may be more. Where several
// had waited there may soon be many: then more receives are posted.
func (g *gsi) poll(receive func(from verbs.GRH, datagram []byte)) (more bool) {
	var wcs [32]verbs.WC
	for round := range pollRounds {
		n := g.cq.Poll(wcs[:])
		if round == 0 && n == len(wcs) {
			_ = g.grow() // it fails only when the device is being closed
		}
		if n == 0 {
			return false
		}
		for i := range wcs[:n] {
			g.completed(&wcs[i], receive)
		}
	}
	return true
}

func (g *gsi) completed(wc *verbs.WC, receive func(from verbs.GRH, datagram []byte)) {
	if wc.Status == verbs.StatusWRFlushErr {
		g.lost = true
	}
	if wc.Opcode != verbs.WCRecv {
		g.free = append(g.free, uint16(wc.ID))
		return
	}
	if wc.Status == verbs.StatusSuccess {
		b := g.mr.Bytes()[int(wc.ID)*recvSlotLen:][:wc.ByteLen]
		// Linux sends from queue pair 1 always. A program that has none
		// cannot be a connection manager (IBTA 13.5.1).
		if grh, err := verbs.ParseGRH(b); err == nil && wc.SrcQPN == gsiQPN {
			receive(grh, b[verbs.GRHLen:])
		}
	}
	if g.lost {
		return // it would complete at once, and so on
	}
	_ = g.receive(wc.ID) // it fails only when the device is being closed
}

// sent reports whether the link has all that was posted.
func (g *gsi) sent() bool { return len(g.free) == sendSlots }

// room returns the memory for one more datagram to send; nil: all of it is on
// its way. What was written there goes with push.
func (g *gsi) room() []byte {
	if len(g.free) == 0 {
		return nil
	}
	return g.slot(g.free[len(g.free)-1])
}

func (g *gsi) slot(i uint16) []byte {
	at := recvSlots*recvSlotLen + int(i)*madLen
	return g.mr.Bytes()[at : at+madLen : at+madLen]
}

// push queues the datagram in what room has returned, for flush.
func (g *gsi) push(to verbs.AddressVector) {
	ah := g.handle(to)
	if ah == nil {
		return // as if the network had lost it
	}
	slot := g.free[len(g.free)-1]
	g.free = g.free[:len(g.free)-1]
	g.sges = append(g.sges, g.mr.Slice(recvSlots*recvSlotLen+int(slot)*madLen, madLen))
	g.batch = append(g.batch, verbs.SendWR{
		ID: uint64(slot), Opcode: verbs.OpSend, Signaled: true,
		AH: ah, RemoteQPN: gsiQPN, RemoteQKey: verbs.HighQKey,
	})
}

// flush sends what was queued.
func (g *gsi) flush() {
	if len(g.batch) == 0 {
		return
	}
	for i := range g.batch {
		g.batch[i].SGList = g.sges[i : i+1]
	}
	if err := g.qp.PostSend(g.batch...); err != nil {
		// What was not taken is lost, as in the network.
		taken := 0
		if refused := (*verbs.PostError)(nil); errors.As(err, &refused) {
			taken = refused.Index
		}
		for i := range g.batch[taken:] {
			g.free = append(g.free, uint16(g.batch[taken+i].ID))
		}
	}
	g.batch, g.sges = g.batch[:0], g.sges[:0]
}

// handle returns a handle for datagrams to a place. Those that were used are
// kept, and all go when they are too many: what was posted with one needs it no
// more.
func (g *gsi) handle(to verbs.AddressVector) *verbs.AddressHandle {
	if h := g.handles[to]; h != nil {
		return h
	}
	h, err := g.pd.CreateAH(to)
	if err != nil {
		return nil
	}
	if len(g.handles) >= maxHandles {
		g.flush() // what is queued still needs them
		for _, old := range g.handles {
			old.Close()
		}
		clear(g.handles)
	}
	g.handles[to] = h
	return h
}
