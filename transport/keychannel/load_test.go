package keychannel_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/guard"
	"github.com/gosoftroce/rocev2/transport/keychannel"
)

// loadSlots are the sockets of each side, loadPorts those of both.
const (
	loadSlots = 2
	loadPorts = 2 * loadSlots
)

// load is two sides that send to each other by a network that loses packets,
// and has them overtake each other.
type load struct {
	t     *testing.T
	ports [loadPorts]*port // those of a, then those of b

	mu      sync.Mutex
	nonces  map[string][]byte // the beginning of what was encrypted with each
	arrived map[message]bool
}

// message is what has to arrive: by which port, and its number.
type message struct{ port, number int }

// port is a link below a guard.
type port struct {
	transport.Link // nil: what a test does not call
	guard          *guard.Link
	load           *load
	addr           netip.Addr
	slot           byte
	peer           *[loadSlots]*port
	in             chan arrival
	over           chan struct{}

	mu   sync.Mutex
	held []arrival // on its way for long
	hold bool
}

func (p *port) Addr() netip.Addr { return p.addr }

func (p *port) Capabilities() transport.Capabilities {
	return transport.Capabilities{Port: rocev2.UDPPort, LinkMTU: 1500, MTU: rocev2.MTU1024}
}

func (p *port) Send(b *transport.TxBatch) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range b.Len() {
		data, _ := b.Sealed(i)
		d := arrival{bytes.Clone(data), p.addr}
		p.load.sealed(d.data)
		to := p.peer[d.data[7]]
		switch {
		case p.hold:
			p.held = append(p.held, d)
		case rand.IntN(10) != 0: // else it is lost
			time.AfterFunc(rand.N(20*time.Millisecond), func() { to.arrive(d) })
		}
	}
	return nil
}

func (p *port) arrive(d arrival) {
	select {
	case p.in <- d:
	case <-p.over:
	}
}

// sealed has no key seal two packets with the same initialization vector: the
// same bytes would be encrypted to the same.
func (l *load) sealed(data []byte) {
	const head, udp, same = 16, 8, 8
	l.mu.Lock()
	defer l.mu.Unlock()
	nonce, secret := string(data[4:head]), data[head+udp:][:same]
	if bytes.Equal(l.nonces[nonce], secret) {
		l.t.Errorf("two packets are sealed with the nonce % x of a key", nonce)
	}
	l.nonces[nonce] = secret
}

func (p *port) Recv(b *transport.RxBatch) (int, error) {
	b.Reset()
	v := transport.NewVerifier(netip.AddrPortFrom(p.addr, rocev2.UDPPort))
	select {
	case d := <-p.in:
		b.Split(b.Copy(d.data), 0, transport.RxPacket{Src: d.from, SrcPort: rocev2.UDPPort, Dst: p.addr}, v)
		return b.Len(), nil
	case <-p.over:
		return 0, net.ErrClosed
	}
}

func newLoad(t *testing.T, a, b *side) *load {
	l := &load{t: t, nonces: map[string][]byte{}, arrived: map[message]bool{}}
	var of [2][loadSlots]*port
	for i, s := range []*side{a, b} {
		for slot := range loadSlots {
			p := &port{load: l, addr: []netip.Addr{addrA, addrB}[i], slot: byte(slot), peer: &of[1-i], in: make(chan arrival), over: make(chan struct{})}
			p.guard = guard.New(p, guard.Config{Table: s.table, Want: s.Want, Slot: byte(slot)})
			of[i][slot], l.ports[i*loadSlots+slot] = p, p
		}
	}
	for _, p := range l.ports {
		go p.receive()
	}
	return l
}

// receive takes what has come.
func (p *port) receive() {
	rx := transport.NewRxBatch(4)
	for {
		if _, err := p.guard.Recv(rx); err != nil {
			return
		}
		for _, k := range rx.Packets() {
			said := k.Data[rocev2.BTHLen:]
			p.load.mu.Lock()
			p.load.arrived[message{int(said[0]), int(binary.BigEndian.Uint32(said[4:]))}] = true
			p.load.mu.Unlock()
		}
	}
}

// says sends a message to a slot of the peer.
func (l *load) says(m message) {
	p := l.ports[m.port]
	qpn := rocev2.QPN(256 + m.number%loadSlots)
	k := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCWriteMiddle, PKey: rocev2.DefaultPKey, DestQPN: qpn}, Payload: []byte{byte(m.port), 7: 0}}
	binary.BigEndian.PutUint32(k.Payload[4:], uint32(m.number))
	b := transport.NewTxBatch(1 << 13)
	to := p.peer[0].addr
	b.Commit(copy(b.Room(), k.AppendTo(nil)), transport.NewPath(p.addr, transport.Path{Dst: to}))
	if err := p.guard.Send(b); err != nil {
		l.t.Error(err)
	}
}

// runs has each port say something every 20 ms, and again what has not arrived
// after 50 ms. It returns how often the most unlucky message was sent.
func (l *load) runs(messages int) (most int) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range l.ports {
		wg.Go(func() {
			for n := range messages {
				time.Sleep(20 * time.Millisecond)
				wg.Go(func() {
					m, tries := message{i, n}, 0
					for ; tries == 0 || !l.has(m) && tries < 100; tries++ {
						l.says(m)
						time.Sleep(50 * time.Millisecond)
					}
					mu.Lock()
					defer mu.Unlock()
					most = max(most, tries)
				})
			}
		})
	}
	wg.Wait()
	return most
}

func (l *load) has(m message) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.arrived[m]
}

// sum returns the sum of a counter of all ports.
func (l *load) sum() (c guard.Counters) {
	for _, p := range l.ports {
		of := p.guard.Counters()
		c.Add(&of)
	}
	return c
}

// TestRenewedUnderLoad has both sides renew keys, at the same time or one after
// the other, with every second connection cut somewhere, while both send and
// the network loses packets. Each message arrives, no key seals twice with the
// same initialization vector, and keys that have been followed twice open
// nothing.
func TestRenewedUnderLoad(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	one, two := config(t, ca, testcert.Subject{Addr: addrA.String()}), config(t, ca, testcert.Subject{Addr: addrB.String()})
	slots := func(c *keychannel.Config) { c.Slots = loadSlots }
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		a, b := n.open(t, addrA, one, slots), n.open(t, addrB, two, slots)
		a.Want(addrB, guard.ToSend)
		synctest.Wait() // without keys packets wait for a while only
		agreed(t, a, b, addrA, addrB)
		n.wrap = func(c net.Conn, _ bool) net.Conn {
			return &cutting{conn: c.(*conn), left: []int{rand.IntN(8), 1000}[rand.IntN(2)]}
		}
		l := newLoad(t, a, b)
		stop := make(chan struct{})
		go renews(stop, func() { a.Want(addrB, guard.Renew) }, func() { b.Want(addrA, guard.Renew) })
		most := l.runs(2000)
		close(stop)
		if most > 20 {
			t.Errorf("a message was sent %d times", most)
		}
		c := l.sum()
		if c.NoKeys != 0 || c.Unknown != 0 || c.Forged != 0 || c.Replays != 0 || c.Stale != 0 || c.Opened < 4*2000 {
			t.Errorf("%+v", c)
		}
		if a, b := a.Counters(), b.Counters(); a.Agreed < 10 || a.Failed+b.Failed == 0 {
			t.Errorf("%+v, %+v", a, b)
		}
		n.wrap = nil
		l.late(a, b)
		for _, p := range l.ports {
			close(p.over)
		}
		closeAll(t, a, b)
	})
}

// renews has both sides renew keys until stop is closed.
func renews(stop chan struct{}, sides ...func()) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Second + rand.N(time.Second)):
		}
		for _, want := range sides {
			want()
			if rand.IntN(2) == 0 {
				time.Sleep(rand.N(10 * time.Millisecond))
			}
		}
	}
}

// late has packets arrive that were sealed with the keys before, and with those
// before them.
func (l *load) late(a, b *side) {
	p, t := l.ports[0], l.t
	for back := (message{loadSlots, 1 << 20}); !l.has(back); { // else p asks for keys, as it hears nothing
		l.says(back)
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(5 * keychannel.Overlap) // no more than one key for each direction is left
	p.mu.Lock()
	p.hold = true
	p.mu.Unlock()
	for i := range 2 {
		l.says(message{0, 1<<20 + 2*i})
	}
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	if len(held) != 2 {
		t.Fatalf("%d packets are on their way", len(held))
	}
	renew := func() {
		was := a.state(addrB).Since
		a.Want(addrB, guard.Renew)
		synctest.Wait()
		if a.state(addrB).Since.Equal(was) || b.state(addrA).Since.IsZero() {
			t.Error("there are no new keys")
		}
		time.Sleep(keychannel.Overlap / 2)
	}
	before := l.sum()
	renew()
	p.peer[0].arrive(held[0])
	synctest.Wait()
	if !l.has(message{0, 1 << 20}) {
		t.Error("a packet of the key before does not open")
	}
	renew()
	time.Sleep(2 * keychannel.Overlap)
	p.peer[0].arrive(held[1])
	synctest.Wait()
	if l.has(message{0, 1<<20 + 2}) || l.sum().Unknown != before.Unknown+1 {
		t.Errorf("a packet of a key that was followed twice: %+v", l.sum())
	}
}
