package hca

import (
	"net/netip"
	"runtime"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
)

// What devices take that have done little: many fit into one process.
func TestMemoryOfDevices(t *testing.T) { // not parallel: it measures the heap
	const devices, most = 64, 192 << 10
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	regions := uint64(1 << 20) // of equip
	for _, c := range []struct {
		why  string
		size uint32
	}{{"a WRITE of 8 bytes", 8}, {"a WRITE of 1 MiB", 1 << 20}} {
		before := heap()
		sw := fabric.NewSwitch(fabric.Config{})
		hosts := make([]*host, devices)
		for i := range hosts {
			p, err := sw.Attach(netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + i)}))
			if err != nil {
				t.Fatal(err)
			}
			hosts[i] = &host{t: t, dev: New(Config{}, p)}
			hosts[i].equip()
		}
		for i, h := range hosts {
			to := hosts[(i+1)%devices]
			qa, qb := h.newQP(), to.newQP()
			h.connect(qa, to.dev.Addr(), qb.QPN())
			to.connect(qb, h.dev.Addr(), qa.QPN())
			h.write(qa, to, c.size)
			h.waitOK(1)
		}
		each := (heap()-before)/devices - regions
		t.Logf("after %s: %d KiB for each of %d devices", c.why, each>>10, devices)
		if each > most {
			t.Errorf("after %s a device takes %d bytes, more than %d", c.why, each, most)
		}
		for _, h := range hosts {
			h.must(h.dev.Close())
		}
		runtime.KeepAlive(hosts)
	}
}
