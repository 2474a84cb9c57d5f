package verbs_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// BenchmarkSealed writes over loopback sockets, in clear and sealed.
func BenchmarkSealed(b *testing.B) {
	for _, size := range []int{8, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("clear/%d", size), func(b *testing.B) { sealedWrites(b, size, nil) })
		for _, v := range []verbs.SealVersion{verbs.SealGCM128, verbs.SealGMAC128} {
			b.Run(fmt.Sprintf("%v/%d", v, size), func(b *testing.B) { sealedWrites(b, size, &v) })
		}
	}
}

func sealedWrites(b *testing.B, size int, v *verbs.SealVersion) {
	var all [2]verbstest.Side
	for i := range all {
		s := &all[i]
		n := rand.Uint32()
		var err error
		s.Dev, err = verbs.OpenAddr(netip.AddrFrom4([4]byte{127, byte(n>>16)%250 + 2, byte(n >> 8), byte(n)%250 + 2}), verbs.Config{Sealing: v != nil})
		check(b, err)
		b.Cleanup(func() { s.Dev.Close() })
		s.PD, err = s.Dev.AllocPD()
		check(b, err)
		s.CQ, err = s.Dev.CreateCQ(1024)
		check(b, err)
		s.MR, err = s.PD.RegisterMemory(make([]byte, 1<<20), verbs.LocalWrite|verbs.RemoteWrite)
		check(b, err)
		s.QP, err = s.PD.CreateQP(verbs.QPConfig{SendCQ: s.CQ, RecvCQ: s.CQ})
		check(b, err)
	}
	from, to := &all[0], &all[1]
	verbstest.Connect(b, from.QP, to.QP)
	if v != nil {
		seal(b, from.QP, to.QP, *v)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	posted, done := 0, 0
	wr := verbs.SendWR{Opcode: verbs.OpWrite, Signaled: true, SGList: sgl(from.MR, 0, size), Remote: to.MR.RemoteAt(0)}
	for b.Loop() {
		for posted-done >= 16 {
			check(b, from.Next(b).Err())
			done++
		}
		check(b, from.QP.PostSend(wr))
		posted++
	}
	for ; done < posted; done++ {
		check(b, from.Next(b).Err())
	}
}
