package faces

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/gosoftroce/rocev2/bench/internal/pair"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// flood dials again and again while forged requests for connections come to the
// same listener. The listening program accepts whatever comes, as one that
// knows nothing of the flood.
type flood struct {
	*base
	forged atomic.Uint64
}

const (
	gsiQKey = 0x80010000
	burst   = 50 // forged requests sent at once
)

// Run dials, or accepts and looks at its memory.
func (f *flood) Run(stop <-chan struct{}) (pair.Result, error) {
	if !f.cfg.Active {
		return f.suffer(stop)
	}
	r := newResult()
	to, err := netip.ParseAddrPort(f.peer)
	if err != nil {
		return r, err
	}
	failed := make(chan error, 1)
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f.forge(to, over); err != nil {
			failed <- err
		}
	})
	begin := time.Now()
	time.Sleep(f.cfg.Warm) // the flood fills what can be filled
	var slowest, total time.Duration
	dials := 0
	for end := time.Now().Add(max(3*f.cfg.Measure, 2*time.Second)); time.Now().Before(end) && err == nil; dials++ {
		t0 := time.Now()
		var c channel
		if c, err = f.face.dial(f.ctx, f.peer); err == nil {
			slowest, total = max(slowest, time.Since(t0)), total+time.Since(t0)
			err = c.close()
		}
	}
	took := time.Since(begin)
	close(over)
	wg.Wait()
	select {
	case e := <-failed:
		err = errors.Join(err, e)
	default:
	}
	if err != nil {
		return r, fmt.Errorf("after %d dials: %w", dials, err)
	}
	r.Values["max_ms"] = slowest.Seconds() * 1e3
	r.Values["mean_ms"] = total.Seconds() * 1e3 / float64(dials)
	r.Values["dials"] = float64(dials)
	r.Values["forged_per_second"] = float64(f.forged.Load()) / took.Seconds()
	if r.Values["forged_per_second"] < 0.8*float64(f.cfg.Rate) {
		return r, fmt.Errorf("the flood had only %.0f requests a second", r.Values["forged_per_second"])
	}
	return r, nil
}

// forge sends forged requests, at an even rate, until over is closed.
func (f *flood) forge(to netip.AddrPort, over <-chan struct{}) error {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{Port: 0}) // each packet names its source
	if err != nil {
		return err
	}
	defer conn.Close()
	p := ipv4.NewPacketConn(conn)
	port := uint16(conn.LocalAddr().(*net.UDPAddr).Port)
	victim := &net.UDPAddr{IP: to.Addr().AsSlice(), Port: rocev2.UDPPort}
	ms := make([]ipv4.Message, burst)
	for i := range ms {
		ms[i].Addr = victim
	}
	begin := time.Now()
	for {
		if isClosed(over) {
			return nil
		}
		due := uint64(time.Since(begin).Seconds() * float64(f.cfg.Rate))
		if f.forged.Load()+burst > due {
			time.Sleep(500 * time.Microsecond)
			continue
		}
		for i := range ms {
			src := f.source()
			c := ipv4.ControlMessage{Src: src.AsSlice()}
			ms[i].OOB = c.Marshal()
			ms[i].Buffers = [][]byte{forgedREQ(src, to, port)}
		}
		for sent := 0; sent < len(ms); {
			n, err := p.WriteBatch(ms[sent:], 0)
			if err != nil {
				continue // ICMP errors of the packets before
			}
			sent += n
			f.forged.Add(uint64(n))
		}
	}
}

func (f *flood) source() netip.Addr {
	switch f.cfg.From {
	case OneSource:
		return netip.AddrFrom4([4]byte{127, 66, 0, 1})
	case OwnSource:
		return netip.MustParseAddr(f.cfg.Addr)
	}
	n := rand.Uint32()
	return netip.AddrFrom4([4]byte{127, byte(64 + n>>24%64), byte(n >> 16), byte(n>>8)%254 + 1})
}

// forgedREQ returns a request that cannot be told from that of an honest client
// that is new.
func forgedREQ(src netip.Addr, to netip.AddrPort, port uint16) []byte {
	ip := mad.IPHeader{SourcePort: uint16(rand.Uint32()), Source: src, Destination: to.Addr()}
	m := mad.REQ{
		TransactionID: rand.Uint64(), LocalID: mad.CommID(rand.Uint32() | 1), LocalGUID: mad.GUID(rand.Uint64()),
		LocalQPN: rocev2.QPN(rand.Uint32N(1<<22) + 2), StartingPSN: rocev2.PSN(rand.Uint32()) & rocev2.PSNMask,
		ServiceID: mad.PortSpaceTCP.Service(to.Port()), PKey: 0xffff, PathMTU: 5, MaxRetries: 15,
		RemoteResponseTimeout: 20, LocalResponseTimeout: 20, RetryCount: 7, RNRRetryCount: 7, FlowControl: true,
		Primary: mad.Path{LocalGID: src, RemoteGID: to.Addr(), AckTimeout: 14, HopLimit: 64, SubnetLocal: true},
		Private: ip.AppendTo(nil),
	}
	p := rocev2.Packet{
		BTH:     rocev2.BTH{Opcode: rocev2.UDSendOnly, PKey: 0xffff, DestQPN: 1, PSN: rocev2.PSN(rand.Uint32()) & rocev2.PSNMask},
		DETH:    rocev2.DETH{QKey: gsiQKey, SrcQPN: 1},
		Payload: m.AppendTo(nil),
	}
	flow := rocev2.NewFlow(src, to.Addr(), port, rocev2.UDPPort)
	return flow.Seal(0, p.AppendTo(nil))
}

// suffer accepts whatever comes, and looks at the memory of this process.
func (f *flood) suffer(stop <-chan struct{}) (pair.Result, error) {
	r := newResult()
	debug.FreeOSMemory()
	before := memoryOf(os.Getpid()).rss
	go f.accepting(func(c channel) { c.gone(); c.close() })
	peak := before
	for look := time.NewTicker(100 * time.Millisecond); !isClosed(stop); {
		<-look.C
		peak = max(peak, memoryOf(os.Getpid()).rss)
	}
	r.Values["peak_growth_mb"] = peak - before
	st := cm.ReadStats(f.dev)
	r.Values["half_open"] = float64(st.HalfOpen)
	r.Counts["CM: requests dropped for lack of room"] = st.Overloaded
	r.Counts["CM: requests that made room"] = st.Evicted
	r.Counts["CM: received"] = st.Received
	debug.FreeOSMemory()
	r.Values["growth_mb"] = memoryOf(os.Getpid()).rss - before
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	r.Values["heap_mb"] = float64(m.HeapAlloc) / 1e6
	dev := f.dev.Stats()
	r.Counts["receive buffer overflows"] = dev.Link.RxOverflow
	for _, reason := range []string{"bad_icrc", "malformed", "wrong_length"} { // a flood that is none
		if n := dev.Drops[reason]; n > 0 {
			r.Errors["dropped: "+reason] = n
		}
	}
	if st.Received < uint64(f.cfg.Rate)/2 {
		r.Errors["messages of the flood that have come"] = st.Received
	}
	return r, nil
}
