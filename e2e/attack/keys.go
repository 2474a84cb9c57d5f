package attack

import (
	"crypto/ed25519"
	"crypto/tls"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
)

const crowdMust = "connections go on, hosts that are new agree on keys, no stranger does, and memory is bounded"

// keyAttacks are attacks on how the hosts of secured devices agree on keys: at
// a TCP port, which any host can connect to.
var keyAttacks = []Attack{
	{
		Name: "keys-silent", Must: crowdMust,
		What: "strangers connect to the TCP port where hosts agree on keys, as often as they can, and say nothing",
		run:  func(t *Trial) { t.crowded((*crowd).silent) },
	}, {
		Name: "keys-local", Must: crowdMust,
		What: "other processes of the hosts that are new to the victim connect there from their addresses, as often as they can, and say nothing",
		run:  func(t *Trial) { t.crowded((*crowd).local) },
	}, {
		Name: "keys-garbage", Must: crowdMust,
		What: "strangers connect there, and send random bytes, the beginning of TLS, and what port scanners send",
		run:  func(t *Trial) { t.crowded((*crowd).garbage) },
	}, {
		Name: "keys-refused", Must: crowdMust,
		What: "strangers connect there by TLS: with another secret, with the victim's certificate and another key, without a certificate, and by TLS 1.2",
		run:  func(t *Trial) { t.crowded((*crowd).refused) },
	}, {
		Name: "keys-unknown", Must: crowdMust,
		What: "packets sealed with keys that the victim does not have, forged as the peer's, as those of new hosts and of others: it asks them for keys",
		run:  func(t *Trial) { t.crowded((*crowd).unknown) },
	}, {
		Name: "keys-replay",
		What: "a handshake is recorded, and what its sides have said is said again: to the victim, from the address of the host, and to another host that connects to the victim",
		Must: "no keys of it, the connection goes on, and the other host agrees when it is let through",
		run:  replayedKeys,
	},
}

// keyPort is the TCP port where hosts agree on keys.
const keyPort = rocev2.UDPPort

// crowd is strangers that come to the victim beside its traffic.
type crowd struct {
	lab   *lab
	hosts []*host      // that are new to the victim
	addrs []netip.Addr // of strangers
	tls   []*tls.Config
	taken [][]byte // sealed packets to the victim
	held  chan net.Conn

	came, told atomic.Uint64 // visits; those that were told something within TLS
}

const (
	crowdHosts   = 3
	crowdAddrs   = 64
	crowdHeld    = 200 // connections that stay
	crowdWorkers = 4
	crowdHeap    = 8 << 20 // bytes of small objects

	// patient is a timeout of 2 s: eight of them are for new keys beside a
	// flood.
	patient = 19
)

// crowded has strangers visit again and again, beside a connection, and hosts
// that are new.
func (t *Trial) crowded(visit func(*crowd)) {
	l := t.lab
	c := l.connect(l.peer, l.victim, endConfig{})
	if !t.healthy(c, 20) {
		return
	}
	w := l.crowd()
	small, routines := smallHeap(), runtime.NumGoroutine()
	var stops []func()
	for range crowdWorkers {
		stops = append(stops, flood(func(int) { visit(w); w.came.Add(1) }))
	}
	longest := time.Duration(0)
	for _, h := range w.hosts {
		l.await("stranger", func() bool { return w.came.Load() > 0 })
		begin := time.Now()
		x := l.connect(h, l.victim, endConfig{timeout: patient})
		if !t.healthy(x, 10) || !t.healthy(c, 20) {
			break
		}
		longest = max(longest, time.Since(begin))
	}
	l.await("enough strangers", func() bool { return w.came.Load() >= uint64(t.Conns) })
	ok := t.healthy(c, 20)
	for _, stop := range stops {
		stop()
	}
	w.leave()
	t.result.Sent = w.came.Load()
	t.figure("new hosts have talked after at most", float64(longest.Milliseconds()), "ms")
	t.must(w.told.Load() == 0, "%d strangers were told something", w.told.Load())
	t.must(len(l.intruders()) == 0, "the victim has keys of %v", l.intruders())
	if !ok {
		return
	}
	const more = 8 // that come and go
	t.must(l.happens(giveUpAfter, func() bool { return runtime.NumGoroutine() <= routines+more }), "there were %d goroutines, and are %d after %d visits",
		routines, runtime.NumGoroutine(), t.result.Sent)
	small = smallHeap() - small
	t.figure("heap growth of small objects", float64(small), "bytes")
	t.must(small < crowdHeap, "%d visits hold %d bytes", t.result.Sent, small)
}

// intruders returns hosts that the victim has keys of, and that are none of the
// lab's.
func (l *lab) intruders() []netip.Addr {
	return slices.DeleteFunc(l.victim.dev.KeyHosts(), func(a netip.Addr) bool { return l.tapped[a] != nil })
}

// crowd makes one.
func (l *lab) crowd() *crowd {
	w := &crowd{lab: l, held: make(chan net.Conn, crowdHeld), taken: l.take(l.victim)}
	for range crowdHosts {
		w.hosts = append(w.hosts, l.host())
	}
	for len(w.addrs) < crowdAddrs {
		if a := l.net.addr(); l.tapped[a] == nil { // else it is a host's
			w.addrs = append(w.addrs, a)
		}
	}
	other := keyConfig()
	other.VerifyConnection = nil // it takes any side
	stolen, none, old := other.Clone(), other.Clone(), other.Clone()
	_, key, err := ed25519.GenerateKey(nil)
	check(err)
	stolen.Certificates = []tls.Certificate{{Certificate: l.guarded.Certificates[0].Certificate, PrivateKey: key}}
	none.Certificates = nil
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	w.tls = []*tls.Config{other, stolen, none, old}
	return w
}

// addr returns the address of a stranger.
func (w *crowd) addr() netip.Addr { return w.addrs[rand.IntN(len(w.addrs))] }

// leave ends the connections that stay.
func (w *crowd) leave() {
	close(w.held)
	for c := range w.held {
		c.Close()
	}
}

// dial connects to the victim's TCP port.
func (l *lab) dial(from netip.Addr) (net.Conn, error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), Timeout: time.Second}
	return d.DialContext(l.ctx, "tcp", netip.AddrPortFrom(l.victim.addr, keyPort).String())
}

// visit connects, says something, and stays, as others go.
func (w *crowd) visit(from netip.Addr, say []byte) {
	c, err := w.lab.dial(from)
	if err != nil {
		return // there were too many
	}
	_, _ = c.Write(say) // or the victim has closed it
	for {
		select {
		case w.held <- c:
			return
		default:
		}
		select {
		case oldest := <-w.held:
			oldest.Close()
		default:
		}
	}
}

func (w *crowd) silent() { w.visit(w.addr(), nil) }

// local is a process of a host that is new to the victim.
func (w *crowd) local() { w.visit(w.hosts[rand.IntN(len(w.hosts))].addr, nil) }

func (w *crowd) garbage() {
	b := make([]byte, rand.IntN(2000))
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	switch rand.IntN(3) {
	case 0:
		b = []byte(probes[rand.IntN(len(probes))])
	case 1: // a record of TLS with a ClientHello, as long as may be
		b = append([]byte{22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc, 3, 3}, b...)
	}
	w.visit(w.addr(), b)
}

// refused goes through TLS as far as it gets.
func (w *crowd) refused() {
	from := w.addr()
	c, err := w.lab.dial(from)
	if err != nil {
		return
	}
	defer c.Close()
	if c.SetDeadline(time.Now().Add(time.Second)) != nil {
		return
	}
	own, peer := from.As16(), w.lab.victim.addr.As16()
	record := slices.Concat([]byte{2, 0, 0, 1, 0, 1, 0, 0}, own[:], peer[:]) // see package transport/keychannel
	s := tls.Client(c, w.tls[rand.IntN(len(w.tls))])
	if _, err := s.Write(record); err != nil {
		return
	}
	if n, _ := s.Read(record); n > 0 {
		w.told.Add(1)
	}
}

// unknown sends a packet with an SPI of a secured device that nothing has
// chosen, but for luck.
func (w *crowd) unknown() {
	src := w.addr()
	switch rand.IntN(4) {
	case 0:
		src = w.lab.peer.addr
	case 1:
		src = w.hosts[rand.IntN(len(w.hosts))].addr
	}
	b := copyOf(w.taken[rand.IntN(len(w.taken))])
	binary.BigEndian.PutUint16(b[atSPI:], uint16(1<<15|rand.Uint32()))
	w.lab.datagram(netip.AddrPortFrom(src, rocev2.UDPPort), b)
}
