package stage

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/tap"
)

// wire carries single packets, just as they are given, and takes what comes for
// one queue pair number. Other packets, those of earlier rules among them, are
// dropped.
type wire struct {
	link *tap.Switch
	peer netip.Addr
	tx   *transport.TxBatch
	path *transport.Path
	in   chan arrival // bounded: the rest of a flood is counted only
	mads chan []byte  // bounded as well
	done chan struct{}

	mu      sync.Mutex
	qpn     rocev2.QPN // of this side; 0 takes nothing
	dropped int
	came    bool  // anything, for any of the numbers
	lost    error // why the link receives nothing now
}

// arrival is a packet for this side.
type arrival struct {
	at   time.Time
	data []byte // BTH to ICRC
	icrc bool   // it is right
	port uint16 // that it came from
}

// inRoom is how many packets may wait: more than any rule lets come.
const inRoom = 512

// captureBytes is what is kept of a rule's packets.
const captureBytes = 1 << 20

// newWire takes packets of link. The link belongs to the wire from now on.
func newWire(link transport.Link, peer netip.Addr) *wire {
	w := &wire{
		link: tap.NewSwitch(link), peer: peer, tx: transport.NewTxBatch(0),
		path: transport.NewPath(link.Addr(), transport.Path{Dst: peer}),
		in:   make(chan arrival, inRoom), mads: make(chan []byte, 16), done: make(chan struct{}),
	}
	go w.receive()
	return w
}

func (w *wire) close() error {
	err := w.link.Close()
	<-w.done
	return err
}

func (w *wire) receive() {
	defer close(w.done)
	b := transport.NewRxBatch(64)
	for {
		if err := w.link.Wait(); err != nil {
			w.fail(err)
			return
		}
		_, err := w.link.Recv(b)
		if errors.Is(err, transport.ErrClosed) {
			return
		}
		w.fail(err)
		for i := range b.Packets() {
			w.take(&b.Packets()[i])
		}
	}
}

// fail keeps the latest error, nil for none.
func (w *wire) fail(err error) {
	w.mu.Lock()
	w.lost = err
	w.mu.Unlock()
}

func (w *wire) take(p *transport.RxPacket) {
	if len(p.Data) < rocev2.BTHLen || p.Src != w.peer {
		return
	}
	qpn := rocev2.QPN(p.Data[5])<<16 | rocev2.QPN(p.Data[6])<<8 | rocev2.QPN(p.Data[7])
	if qpn == gsiQPN {
		w.manage(p.Data)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if qpn != w.qpn || w.qpn == 0 {
		return
	}
	w.came = true
	a := arrival{at: time.Now(), data: append([]byte(nil), p.Data...), icrc: !p.ICRC.Refuses(), port: p.SrcPort}
	select {
	case w.in <- a:
	default:
		w.dropped++
	}
}

// manage takes a management datagram. What there is no room for is lost.
func (w *wire) manage(data []byte) {
	var p rocev2.Packet
	if p.Parse(data) != nil || p.BTH.Opcode != rocev2.UDSendOnly || p.DETH.QKey != gsiQKey || len(p.Payload) != mad.Len {
		return
	}
	select {
	case w.mads <- append([]byte(nil), p.Payload...):
	default:
	}
}

// begin forgets what has come, takes what comes for qpn from now on, and
// records it.
func (w *wire) begin(qpn rocev2.QPN) *tap.Ring {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.qpn, w.dropped = qpn, 0
	for len(w.in) > 0 {
		<-w.in
	}
	for len(w.mads) > 0 {
		<-w.mads
	}
	ring := tap.NewRing(captureBytes, tap.Filter{})
	w.link.Record(ring)
	return ring
}

// end ends the recording, and returns how many packets of a flood were lost.
func (w *wire) end() int {
	w.link.Record(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.qpn = 0
	return w.dropped
}

// send sends b, which is a packet from BTH to pad, on a path, or on that to the
// peer. damage spoils the ICRC.
func (w *wire) send(b []byte, damage uint32, path *transport.Path) error {
	w.tx.Reset()
	if path == nil {
		path = w.path
	}
	w.tx.Commit(copy(w.tx.Room(), b), path)
	if damage != 0 {
		w.tx.Damage(0, damage)
	}
	return w.link.Send(w.tx)
}

// silence says why nothing has come since the wire was made; nil if something
// has.
func (w *wire) silence() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.came:
		return nil
	case w.lost != nil:
		return fmt.Errorf("this side receives nothing: %w", w.lost)
	}
	return fmt.Errorf("no packet came from %v for any rule: is it the address of what is tested, and does UDP port %d reach it and this host? \"rocev2 doctor %v\" looks for the reason", w.peer, rocev2.UDPPort, w.peer)
}
