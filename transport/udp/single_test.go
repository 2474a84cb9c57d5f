//go:build linux && !portable

package udp

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"golang.org/x/sys/unix"
)

// waitNow calls Wait, which must not block.
func waitNow(t *testing.T, l *Link) {
	t.Helper()
	guard := time.AfterFunc(time.Minute, func() {
		t.Error("Wait blocks though there may be something")
		l.Wake()
	})
	defer guard.Stop()
	if err := l.Wait(); err != nil {
		t.Fatal(err)
	}
}

// Single datagrams, runs and many at once follow each other at random, and are
// taken now and then, into batches of any number of buffers. Nothing is lost,
// nothing overtakes, and Wait never sleeps over anything.
func TestFewAndMany(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{{}, {DisableGRO: true}, {DisableGSO: true}} {
		t.Run(fmt.Sprintf("GSO=%v,GRO=%v", !c.DisableGSO, !c.DisableGRO), func(t *testing.T) {
			families(t, func(t *testing.T, v6 bool) { testFewAndMany(t, v6, c) })
		})
	}
}

func testFewAndMany(t *testing.T, v6 bool, c Config) {
	a, b, path := ends(t, v6, c, transport.Path{})
	rng := rand.New(rand.NewPCG(1, 2))
	tx := transport.NewTxBatch(1 << 18)
	batches := []*transport.RxBatch{transport.NewRxBatch(8), transport.NewRxBatch(1), transport.NewRxBatch(3), transport.NewRxBatch(100)}
	sent, got, singles, empty := 0, 0, 0, 0
	send := func(n, size int) {
		tx.Reset()
		for range n {
			put(t, tx, path, packet(sent, size))
			sent++
		}
		if err := a.Send(tx); err != nil {
			t.Fatal(err)
		}
	}
	recv := func() int {
		rx := batches[0]
		if rng.IntN(4) == 0 {
			rx = batches[rng.IntN(len(batches))]
		}
		n, err := b.Recv(rx)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range rx.Packets() {
			if !bytes.HasPrefix(p.Data, packet(got, 0)[:rocev2.BTHLen]) || p.ICRC == transport.ICRCBad {
				t.Fatalf("packet %d is another, or damaged", got)
			}
			got++
		}
		if n == 1 && b.rx.left {
			singles++
		}
		switch {
		case n == 0 && sent != got:
			t.Fatalf("nothing came, but %d packets are there", sent-got)
		case n == 0 && b.waiting.more.Load():
			t.Fatal("nothing came, and Wait would not block")
		case sent != got || b.waiting.more.Load():
			waitNow(t, b)
		}
		return n
	}
	for range 3000 {
		switch rng.IntN(4) {
		case 0:
			for range 1 + rng.IntN(4) {
				send(1, 4*rng.IntN(256))
			}
		case 1:
			send(2+rng.IntN(10), 1024)
		case 2:
			send(1, 4096)
		}
		for range rng.IntN(4) {
			if recv() == 0 {
				empty++
			}
		}
		for sent-got > 100 { // less than the buffer holds
			recv()
		}
	}
	for recv() > 0 {
	}
	if st := b.Stats(); sent != got || st.RxOverflow != 0 || st.RxMalformed != 0 {
		t.Errorf("%d of %d packets came: %+v", got, sent, st)
	}
	if singles == 0 || empty == 0 {
		t.Errorf("%d times a single datagram was taken alone, %d times nothing", singles, empty)
	}
}

// A datagram that comes alone costs one system call, and the link then looks
// once more before it waits.
func TestSingleThenWait(t *testing.T) {
	t.Parallel()
	a, b, path := ends(t, false, Config{}, transport.Path{})
	tx, rx := transport.NewTxBatch(0), transport.NewRxBatch(8)
	put(t, tx, path, packet(1, 8))
	for range 3 {
		if n, err := b.Recv(rx); n != 0 || err != nil || !b.rx.few {
			t.Fatalf("%d packets from nowhere (%v), few is %v", n, err, b.rx.few)
		}
		if err := a.Send(tx); err != nil {
			t.Fatal(err)
		}
		waitNow(t, b)
		if n, err := b.Recv(rx); n != 1 || err != nil {
			t.Fatalf("%d packets, %v", n, err)
		}
		waitNow(t, b)
	}
}

// header is what a receiver sees of a datagram besides its data.
type header struct {
	data       []byte
	hop, class int
}

// watch opens a socket that shows the headers of what comes to it.
func watch(t *testing.T, v6 bool) (netip.AddrPort, func() header) {
	t.Helper()
	addr, family, level, opts := loopback(), unix.AF_INET, unix.IPPROTO_IP, []int{unix.IP_RECVTTL, unix.IP_RECVTOS}
	if v6 {
		addr, family, level, opts = netip.IPv6Loopback(), unix.AF_INET6, unix.IPPROTO_IPV6, []int{unix.IPV6_RECVHOPLIMIT, unix.IPV6_RECVTCLASS}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	for _, o := range opts {
		if err := unix.SetsockoptInt(fd, level, o, 1); err != nil {
			t.Fatal(err)
		}
	}
	at := netip.AddrPortFrom(addr, port())
	var sa unix.Sockaddr = &unix.SockaddrInet6{Addr: addr.As16(), Port: int(at.Port())}
	if !v6 {
		sa = &unix.SockaddrInet4{Addr: addr.As4(), Port: int(at.Port())}
	}
	if err := unix.Bind(fd, sa); err != nil {
		t.Fatal(err)
	}
	return at, func() header {
		t.Helper()
		var words [32]uint64 // aligned as the headers in it
		control := unsafe.Slice((*byte)(unsafe.Pointer(&words)), unsafe.Sizeof(words))
		data := make([]byte, 1<<16)
		n, cn, _, _, err := unix.Recvmsg(fd, data, control, unix.MSG_DONTWAIT)
		if err != nil {
			t.Fatal(err)
		}
		h := header{data: data[:n]}
		for rest := control[:cn]; ; {
			v, next, ok := nextControl(rest)
			if !ok {
				return h
			}
			switch rest = next; {
			case v.level == unix.IPPROTO_IP && v.typ == unix.IP_TTL, v.level == unix.IPPROTO_IPV6 && v.typ == unix.IPV6_HOPLIMIT:
				h.hop = v.value
			case v.level == unix.IPPROTO_IP && v.typ == unix.IP_TOS, v.level == unix.IPPROTO_IPV6 && v.typ == unix.IPV6_TCLASS:
				h.class = v.value
			}
		}
	}
}

// A packet alone, small or large, and several of them leave by different system
// calls. All of them have the headers that the path asks for: ports, hop limit,
// DSCP (RFC 2474) and ECN (RFC 3168).
func TestHeadersOnEveryWay(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, v6 bool) {
		at, next := watch(t, v6)
		c := Config{DisableGSO: true}
		addr := loopback()
		if v6 {
			addr, c.Port = netip.IPv6Loopback(), port()
		}
		l := open(t, addr, c)
		other := openPort(t, l, 61700)
		tx := transport.NewTxBatch(1 << 17)
		for _, src := range []uint16{0, other} {
			for _, hop := range []uint8{0, 1, hopLimit, 255} {
				for _, class := range []uint8{0, 0x6a} {
					p := transport.NewPath(addr, transport.Path{Dst: at.Addr(), DstPort: at.Port(), SrcPort: src, HopLimit: hop, TrafficClass: class})
					for _, sizes := range [][]int{{8}, {rocev2.MaxPacketLen - rocev2.BTHLen - rocev2.ICRCLen}, {4096}, {8, 8}, {1024, 4096, 8}} {
						tx.Reset()
						for i, n := range sizes {
							put(t, tx, p, packet(i, n))
						}
						if err := l.Send(tx); err != nil {
							t.Fatal(err)
						}
						for i, n := range sizes {
							h := next()
							wantHop := int(hop)
							if hop == 0 {
								wantHop = hopLimit
							}
							if h.hop != wantHop || h.class != int(class) || len(h.data) != len(packet(i, n))+rocev2.ICRCLen || !p.Flow(netip.AddrPortFrom(l.Addr(), l.caps.Port)).Verify(0, h.data) {
								t.Errorf("port %d, hop limit %d, class %#x, sizes %v: packet %d of %d bytes has hop limit %d and class %#x, or a wrong ICRC",
									src, hop, class, sizes, i, len(h.data), h.hop, h.class)
							}
						}
					}
				}
			}
		}
	})
}

// An error that the kernel has kept from an earlier datagram (an ICMP message,
// RFC 1122 4.1.3.3) is counted. It stops neither what is sent next nor what is
// received.
func TestPendingErrors(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, v6 bool) {
		a, b, path := ends(t, v6, Config{}, transport.Path{})
		back := transport.NewPath(b.Addr(), transport.Path{Dst: a.Addr(), DstPort: a.Capabilities().Port})
		level, opt := unix.IPPROTO_IP, unix.IP_RECVERR
		if v6 {
			level, opt = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
		}
		if err := a.raw.Control(func(fd uintptr) {
			if err := unix.SetsockoptInt(int(fd), level, opt, 1); err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
		nobody := transport.NewPath(a.Addr(), transport.Path{Dst: b.Addr(), DstPort: 9})
		tx, rx := transport.NewTxBatch(1<<16), transport.NewRxBatch(4)
		send := func(l *Link, p *transport.Path) {
			t.Helper()
			tx.Reset()
			put(t, tx, p, packet(1, 8))
			if err := l.Send(tx); err != nil {
				t.Fatal(err)
			}
		}
		send(a, nobody)
		send(a, path)
		if n := a.Stats().SocketErrors; n != 1 {
			t.Fatalf("%d pending errors met by sending", n)
		}
		receive(t, b, 1)
		for i := range 2 { // with recvmsg, then with recvmmsg
			send(b, back)
			send(a, nobody)
			a.rx.few = i == 0
			if n, err := a.Recv(rx); n != 1 || err != nil {
				t.Fatalf("received %d behind a pending error, %v", n, err)
			}
			send(a, nobody)
			a.rx.few = i == 0
			if n, err := a.Recv(rx); n != 0 || err != nil {
				t.Fatalf("received %d with a pending error alone, %v", n, err)
			}
		}
		if st := a.Stats(); st.SocketErrors != 5 || st.TxErrors != 0 || st.TxPackets != 6 || st.RxPackets != 2 {
			t.Errorf("stats %+v", st)
		}
	})
}

// inNamespace runs f on a thread with a network of its own, where the loopback
// interface has the given MTU.
func inNamespace(t *testing.T, mtu int, f func()) {
	t.Helper()
	done, skip := make(chan struct{}), error(nil)
	var run func()
	run = func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() { // /proc shows the network of the first thread: another one
			defer runtime.UnlockOSThread()
			go run()
			<-done
			return
		}
		// Never unlocked: the thread ends with the goroutine.
		defer close(done)
		if skip = unix.Unshare(unix.CLONE_NEWNET); skip != nil {
			return
		}
		if skip = configureLoopback(mtu); skip == nil {
			f()
		}
	}
	go run()
	<-done
	if skip != nil {
		t.Skipf("no network namespace (run as root, or with CAP_SYS_ADMIN): %v", skip)
	}
}

func configureLoopback(mtu int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint32(uint32(mtu))
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFMTU, ifr); err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// A packet larger than the device carries is refused, alone or among others,
// and the others are sent.
func TestTooLargeAlone(t *testing.T) {
	t.Parallel()
	inNamespace(t, 1500, func() {
		var links [2]*Link
		for i, s := range []string{"127.0.0.1", "127.0.0.2"} {
			l, err := Open(netip.MustParseAddr(s), Config{})
			if err != nil {
				t.Error(err)
				return
			}
			defer l.Close()
			links[i] = l
		}
		a, b := links[0], links[1]
		if got := a.Capabilities(); got.LinkMTU != 1500 || got.MTU != rocev2.MTU1024 {
			t.Errorf("capabilities %+v", got)
		}
		path := transport.NewPath(a.Addr(), transport.Path{Dst: b.Addr()})
		tx, rx := transport.NewTxBatch(1<<16), transport.NewRxBatch(4)
		for _, c := range []struct {
			sizes []int
			bad   int // index
		}{{[]int{2048}, 0}, {[]int{64, 2048}, 1}, {[]int{2048, 64}, 0}, {[]int{64, 2048, 64}, 1}, {[]int{4096, 64}, 0}} {
			tx.Reset()
			for i, n := range c.sizes {
				tx.Commit(copy(tx.Room(), packet(i, n)), path)
			}
			var se *transport.SendError
			if err := a.Send(tx); !errors.As(err, &se) || !errors.Is(err, unix.EMSGSIZE) || se.Index != c.bad || se.Failed != 1 {
				t.Errorf("sizes %v: %v", c.sizes, err)
			}
			var want, got []rocev2.PSN
			for i := range c.sizes {
				if i != c.bad {
					want = append(want, rocev2.PSN(i))
				}
			}
			for range 4 {
				if _, err := b.Recv(rx); err != nil {
					t.Error(err)
				}
				for _, p := range rx.Packets() {
					psn := rocev2.PSN(p.Data[11])
					got = append(got, psn)
					if !bytes.HasPrefix(p.Data, packet(int(psn), 64)) || p.ICRC != transport.ICRCVerified {
						t.Errorf("sizes %v: packet %d: ICRC %v", c.sizes, psn, p.ICRC)
					}
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("sizes %v: packets %v came, want %v", c.sizes, got, want)
			}
		}
		if st := a.Stats(); st.TxErrors != 5 || st.OffloadFaults != 0 || !a.Capabilities().SegmentOffload {
			t.Errorf("stats %+v", st)
		}
	})
}

// A packet there and back takes no memory, whatever its way.
func TestNoAllocationsAlone(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, p := range []transport.Path{{}, {TrafficClass: 0x6a}, {HopLimit: 9}} {
			a, b, path := ends(t, v6, Config{}, p)
			tx, rx := transport.NewTxBatch(0), transport.NewRxBatch(8)
			put(t, tx, path, packet(1, 8))
			round := func() {
				if err := a.Send(tx); err != nil {
					t.Fatal(err)
				}
				for n := 0; n == 0; {
					if err := b.Wait(); err != nil {
						t.Fatal(err)
					}
					var err error
					if n, err = b.Recv(rx); err != nil {
						t.Fatal(err)
					}
				}
				if n, err := b.Recv(rx); n != 0 || err != nil {
					t.Fatal(n, err)
				}
			}
			round()
			if n := testing.AllocsPerRun(100, round); n != 0 {
				t.Errorf("IPv6 %v, %+v: %v allocations for a packet", v6, p, n)
			}
		}
	}
}
