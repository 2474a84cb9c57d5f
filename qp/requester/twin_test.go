package requester

import (
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// TestTwins: while the path loses packets the requests for long READs go twice,
// unless the peer turns out to answer both.
func TestTwins(t *testing.T) {
	t.Parallel()
	for _, twice := range []bool{false, true} {
		e := newEnd(t, cc.NewWindow(cc.Config{}))
		e.c.Pool = queue.NewPool(64)
		e.c.Attr.MaxRdAtomic = 4
		e.r.recovery.kept()
		twins := 0
		for i := range 4 * twinTrial {
			e.r.recovery.rtt.lossy()
			now := clock.Time(i) * 1000
			if err := e.r.Post(&ib.SendWR{Opcode: ib.OpRead, SGList: []ib.SGE{e.mr.SGE(0, twinPSNs*256)}}); err != nil {
				t.Fatal(err)
			}
			sent := e.poll(now)
			twins += len(sent) - 1
			for k := range twinPSNs {
				e.respond(now, sent[0].Add(k), k)
			}
			if twice {
				e.respond(now, sent[0], 0)
			}
		}
		want := 4 * twinTrial
		if twice {
			want = twinTrial
		}
		if twins != want || e.r.stream.ring.Len() != 0 {
			t.Errorf("answers to both: %v: %d twins, want %d; %d READs are left", twice, twins, want, e.r.stream.ring.Len())
		}
	}
}

// respond hands the k-th of twinPSNs responses to a READ to the requester.
func (e *end) respond(now clock.Time, psn rocev2.PSN, k int) {
	e.t.Helper()
	op := rocev2.RCReadResponseMiddle
	switch k {
	case 0:
		op = rocev2.RCReadResponseFirst
	case twinPSNs - 1:
		op = rocev2.RCReadResponseLast
	}
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: op, PSN: psn}, Payload: make([]byte, 256)}
	p.AETH = rocev2.AETH{Syndrome: rocev2.ACKNoCredits, MSN: e.r.stream.ssn}
	info, _ := p.BTH.Opcode.Info()
	e.r.HandleResponse(now, &p, info)
	if err := e.r.Check(); err != nil {
		e.t.Fatal(err)
	}
}
