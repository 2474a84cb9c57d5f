//go:build unix

package qp

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/memreg/mapping"
)

// TestBurstFromCutFile: a mapped file that is cut short while it is sent fails
// the request with the packet that it cannot fill, also in the middle of a
// burst, on the side that has it.
func TestBurstFromCutFile(t *testing.T) {
	t.Parallel()
	const size = 256 << 10
	left := 10 * os.Getpagesize()
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
		p := newPair(t, pairConfig{})
		p.bursts = true
		e := p.a
		if op == ib.OpRead {
			e = p.b
		}
		name := filepath.Join(t.TempDir(), "region")
		must(t, os.WriteFile(name, make([]byte, size), 0o600))
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		must(t, err)
		defer f.Close()
		m, err := mapping.File(f, 0, size, mapping.Options{Guard: true})
		must(t, err)
		e.mr, err = e.table.Register(e.pd, m, memreg.Options{Access: testAccess, Base: memreg.BaseIOVA, IOVA: testIOVA})
		must(t, err)
		must(t, p.a.PostSend(&ib.SendWR{ID: 1, Opcode: op, SGList: p.a.sge(0, size/2), Remote: p.b.remote(0), Signaled: true}))
		p.transfer(p.a, 1)
		p.transfer(e, 3)
		must(t, f.Truncate(int64(left)))
		p.train.n = 0
		for e.Poll(p.now, Limit{Packets: 100, Bytes: math.MaxInt}, &p.train).Packets > 0 {
		}
		if e.conn.Stats.TxBytes > uint64(left) || e.conn.Stats.TxBytes+1024 < uint64(left) && op == ib.OpRead {
			t.Errorf("%v: %d bytes of %d that are there left", op, e.conn.Stats.TxBytes, left)
		}
		p.settle()
		want := "1 LOC_PROT_ERR"
		if op == ib.OpRead {
			want = "1 REM_OP_ERR"
		}
		if got := p.a.sq.statuses(); got != want {
			t.Errorf("%v: %q, want %q", op, got, want)
		}
		e.table.Deregister(e.mr)
		must(t, m.Close())
	}
}
