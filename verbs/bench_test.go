package verbs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// BenchmarkSend compares the services: SENDs from one device to another over
// real sockets, in one goroutine. A window of messages that have not been
// received keeps the socket's buffer from overflowing, also where nothing else
// does.
func BenchmarkSend(b *testing.B) {
	for _, size := range []int{8, 4096} {
		for _, typ := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD} {
			b.Run(fmt.Sprintf("%v/%d", typ, size), func(b *testing.B) { benchmarkSend(b, typ, size) })
		}
	}
}

const (
	benchWindow = 64 // messages
	benchBatch  = 16
)

func benchmarkSend(b *testing.B, typ verbs.QPType, size int) {
	from, to := newSocketPair(b, typ, verbs.Config{})
	wr := verbs.SendWR{Opcode: verbs.OpSend, SGList: []verbs.SGE{from.mr.Slice(0, size)}, RemoteQPN: to.qp.QPN(), RemoteQKey: testQKey}
	if typ == verbs.UD {
		wr.AH = from.to(to)
	}
	var batch [benchBatch]verbs.SendWR
	for i := range batch {
		batch[i] = wr
		batch[i].Signaled = i == benchBatch-1
	}
	var recvs [benchBatch]verbs.RecvWR
	for i := range recvs {
		recvs[i].SGList = []verbs.SGE{to.mr.Slice(0, 8192)}
	}
	for range 2 * benchWindow / benchBatch {
		check(b, to.qp.PostRecv(recvs[:]...))
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	posted, received, repost := 0, 0, 0
	var wcs [2 * benchWindow]verbs.WC
	var deadline time.Time
	for b.Loop() {
		posted++
		if posted%benchBatch != 0 {
			continue
		}
		check(b, from.qp.PostSend(batch[:]...))
		deadline = time.Time{}
		for posted-received > benchWindow-benchBatch {
			n := to.cq.Poll(wcs[:])
			received, repost = received+n, repost+n
			for ; repost >= benchBatch; repost -= benchBatch {
				check(b, to.qp.PostRecv(recvs[:]...))
			}
			from.cq.Poll(wcs[:])
			if n == 0 && deadline.IsZero() {
				deadline = time.Now().Add(10 * time.Second)
			} else if n == 0 && time.Now().After(deadline) {
				b.Fatalf("%d of %d messages were lost", posted-received, posted)
			}
		}
	}
}

// newSocketPair makes two sides with devices on addresses of this host, and
// queue pairs of a type that can send to each other.
func newSocketPair(t testing.TB, typ verbs.QPType, cfg verbs.Config) (a, b *side) {
	t.Helper()
	var sides [2]*side
	for i := range sides {
		s := loopbackSide(t, cfg, 1<<18)
		check(t, s.qp.Close())
		s.qp = s.newQP(verbs.QPConfig{Type: typ, MaxSendWR: 256, MaxRecvWR: 256})
		sides[i] = s
	}
	a, b = sides[0], sides[1]
	if typ == verbs.UD {
		check(t, a.qp.Activate(testQKey))
		check(t, b.qp.Activate(testQKey))
		return a, b
	}
	connect(t, a.qp, b.qp)
	return a, b
}
