package foreign

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport/udp"
)

const benchBytes = 1 << 20

// benchSide is a device on a loopback address with a queue pair and memory of a
// kind.
type benchSide struct {
	b    *testing.B
	addr netip.Addr
	q    *hca.QP
	mr   *hca.MR
	cq   *hca.CQ
}

func newBenchSide(b *testing.B, last byte, kind string) *benchSide {
	b.Helper()
	s := &benchSide{b: b, addr: netip.AddrFrom4([4]byte{127, 77, byte(os.Getpid()), last})}
	link, err := udp.Open(s.addr, udp.Config{})
	s.must(err)
	dev := hca.New(hca.Config{}, link)
	b.Cleanup(func() { dev.Close() })
	c, err := dev.NewContext()
	s.must(err)
	pd, err := c.AllocPD()
	s.must(err)
	m, iova := benchMemory(b, kind)
	s.mr, err = pd.Register(m, memreg.Options{Access: ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead, Base: memreg.BaseIOVA, IOVA: iova}, nil)
	s.must(err)
	s.cq, err = c.CreateCQ(64, nil)
	s.must(err)
	s.q, err = c.CreateQP(qp.Config{PD: pd.Core(), SendCQ: s.cq, RecvCQ: s.cq, MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1})
	s.must(err)
	return s
}

// benchMemory returns memory of this process, or of another one: that is
// mapped, or copied in one of three ways.
func benchMemory(b *testing.B, kind string) (memreg.Memory, uint64) {
	if kind == "local" {
		return memreg.Local(make([]byte, benchBytes)), 1 << 32
	}
	f := memfd(b, benchBytes/int(pageSize), 2)
	c := start(b, benchBytes/int(pageSize), f)
	s := c.space()
	if kind == "mapped" {
		c.do("share 3 0 0 %d", benchBytes/int(pageSize))
		c.must(s.Map(int(f.Fd()), 0, c.addr, benchBytes))
	}
	s.direct, s.trusted = kind == "vm", kind != "courier"
	c.do("fill 0 %d 1", benchBytes)
	return c.region(s, 0, benchBytes), c.addr
}

func (s *benchSide) must(err error) {
	s.b.Helper()
	if err != nil {
		s.b.Fatal(err)
	}
}

func (s *benchSide) connect(to *benchSide, native bool) {
	s.must(s.q.Modify(&ib.Attr{State: ib.StateInit, Port: 1, Access: ib.RemoteWrite | ib.RemoteRead},
		ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccess))
	s.must(s.q.Modify(&ib.Attr{State: ib.StateRTR, AV: ib.AddressVector{DGID: to.addr, Native: native, SrcPort: hca.AutoSourcePort}, PathMTU: rocev2.MTU4096,
		DestQPN: to.q.QPN(), MaxDestRdAtomic: 16, MinRNRTimer: 12},
		ib.AttrState|ib.AttrAV|ib.AttrPathMTU|ib.AttrDestQPN|ib.AttrRQPSN|ib.AttrMaxDestRdAtomic|ib.AttrMinRNRTimer))
	s.must(s.q.Modify(&ib.Attr{State: ib.StateRTS, Timeout: 14, RetryCount: 7, RNRRetry: 7, MaxRdAtomic: 16},
		ib.AttrState|ib.AttrTimeout|ib.AttrRetryCount|ib.AttrRNRRetry|ib.AttrSQPSN|ib.AttrMaxQPRdAtomic))
}

// BenchmarkTransfer measures WRITEs and READs over loopback sockets between
// memories of a kind, up to 8 at once.
func BenchmarkTransfer(b *testing.B) {
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
		for _, size := range []uint32{64 << 10, 1 << 20} {
			for _, native := range []bool{false, true} {
				for _, kind := range []string{"local", "mapped", "vm", "mem", "courier"} {
					b.Run(fmt.Sprintf("%v/%d/native=%v/%s", op, size, native, kind), func(b *testing.B) { benchmarkTransfer(b, op, size, native, kind) })
				}
			}
		}
	}
}

func benchmarkTransfer(b *testing.B, op ib.Opcode, size uint32, native bool, kind string) {
	x, y := newBenchSide(b, 1, kind), newBenchSide(b, 2, kind)
	x.connect(y, native)
	y.connect(x, native)
	wr := []ib.SendWR{{Opcode: op, Signaled: true, SGList: []ib.SGE{x.mr.Region().SGE(0, size)},
		Remote: ib.RemoteAddr{Addr: y.mr.Region().Addr(), RKey: y.mr.Region().RKey()}}}
	var wcs [8]ib.WC
	posted, done := 0, 0
	take := func() {
		n, err := x.cq.Wait(context.Background(), wcs[:])
		x.must(err)
		for _, wc := range wcs[:n] {
			if wc.Status != ib.StatusSuccess {
				b.Fatal(wc.Status)
			}
		}
		done += n
	}
	b.SetBytes(int64(size))
	for b.Loop() {
		_, err := x.q.PostSend(wr)
		x.must(err)
		for posted++; posted-done >= len(wcs); {
			take()
		}
	}
	for done < posted {
		take()
	}
}
