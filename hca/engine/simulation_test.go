package engine

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

const (
	simEngines = 1000
	simDegree  = 3     // engines that each is connected to, by its own doing
	simLen     = 20000 // bytes of a message
)

// simEnd is a connection from one engine to another.
type simEnd struct {
	from, to *host
	q, peer  *QP
}

// A thousand adapters in one goroutine and virtual time, on a network that
// loses packets: all that is posted completes, and memory is what it should be.
func TestThousandEngines(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a thousand engines: run without -short")
	}
	w := newWorld(t, 42)
	w.delay, w.rate, w.loss = 5*time.Microsecond, 100e9, 0.002
	hosts := make([]*host, simEngines)
	for i := range hosts {
		hosts[i] = w.newHost(Config{}, (1+3*simDegree)*simLen)
		for k := range hosts[i].mem[:simLen] {
			hosts[i].mem[k] = byte(i + k*7)
		}
	}
	var ends []simEnd
	for i, h := range hosts {
		for d := range simDegree {
			to := hosts[(i+1+d*d*17)%simEngines]
			q, peer := connectPair(h, to, (i+d)%2 == 0)
			ends = append(ends, simEnd{h, to, q, peer})
		}
	}
	want := map[*host]int{}
	for n, s := range ends {
		s.post(n%simDegree, want)
	}
	begun := w.now
	for w.step(begun.Add(time.Minute)) {
	}
	for _, h := range hosts {
		if len(h.done) != want[h] {
			t.Fatalf("%v: %d of %d completions", h.addr, len(h.done), want[h])
		}
		h.waitOK(want[h])
		if u := h.e.Usage(); u.InFlight != 0 || u.Limited != 0 || h.e.Pending() {
			t.Errorf("%v: left is %+v", h.addr, u)
		}
	}
	var sent, again, events uint64
	for n, s := range ends {
		s.check(t, n%simDegree)
		sent += s.q.Core().Stats().TxPackets
		again += s.q.Core().Stats().Retransmits
	}
	events = w.seq
	t.Logf("%d engines, %d connections: %d packets, %d of them again, %d events, %v of virtual time",
		simEngines, len(ends), sent, again, events, w.now.Sub(begun))
	if again == 0 {
		t.Error("nothing was lost")
	}
}

// part returns a part of a host's memory. Part 0 is what it sends. Of the
// others each connection d of the host that made it has three: what is written
// to the peer, what is sent to it, and what is read from it.
func (h *host) part(d, i int) ib.SGE {
	if i == 0 {
		return h.mr.SGE(0, simLen)
	}
	return h.mr.SGE(uint64((1+3*d+i-1)*simLen), simLen)
}

// post posts a WRITE, a SEND and a READ. The peer has the parts of the
// connection in its own memory at the same place: no two connections of a
// degree lead to one peer.
func (s *simEnd) post(d int, want map[*host]int) {
	w := s.from.w
	_, err := s.to.e.PostRecv(s.peer, []ib.RecvWR{{SGList: []ib.SGE{s.to.part(d, 2)}}})
	w.must(err)
	rkey := s.to.mr.RKey()
	_, err = s.from.e.PostSend(s.q, []ib.SendWR{
		{Opcode: ib.OpWrite, Signaled: true, SGList: []ib.SGE{s.from.part(d, 0)}, Remote: ib.RemoteAddr{Addr: s.to.part(d, 1).Addr, RKey: rkey}},
		{Opcode: ib.OpSend, Signaled: true, SGList: []ib.SGE{s.from.part(d, 0)}},
		{Opcode: ib.OpRead, Signaled: true, SGList: []ib.SGE{s.from.part(d, 3)}, Remote: ib.RemoteAddr{Addr: s.to.part(d, 0).Addr, RKey: rkey}},
	})
	w.must(err)
	s.from.transmit()
	want[s.from] += 3
	want[s.to]++
}

// check compares what has arrived with what was sent.
func (s *simEnd) check(t *testing.T, d int) {
	t.Helper()
	at := func(h *host, i int) []byte {
		off := h.part(d, i).Addr - h.mr.Addr()
		return h.mem[off : off+simLen]
	}
	sent, theirs := at(s.from, 0), at(s.to, 0)
	if !bytes.Equal(at(s.to, 1), sent) || !bytes.Equal(at(s.to, 2), sent) || !bytes.Equal(at(s.from, 3), theirs) {
		t.Errorf("%v to %v: memory is wrong", s.from.addr, s.to.addr)
	}
}

// What an engine takes of memory: thousands fit into one process.
func TestMemoryOfAnEngine(t *testing.T) { // not parallel: it measures the heap
	const engines = 1000
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	w := newWorld(t, 1)
	hosts := make([]*host, engines)
	for i := range hosts {
		h := &host{w: w}
		h.table = memreg.NewTable(w.rng.Uint32)
		hosts[i] = h
	}
	measure := func(what string, most uint64, f func(i int)) {
		before := heap()
		for i := range engines {
			f(i)
		}
		each := (heap() - before) / engines
		t.Logf("%s: %d bytes for each engine", what, each)
		if each > most {
			t.Errorf("%s takes %d bytes, more than %d", what, each, most)
		}
	}
	measure("idle", 4<<10, func(i int) {
		h := hosts[i]
		h.addr = addrOf(i)
		h.e = New(Config{Addr: h.addr, Memory: h.table, Random: w.rng.Uint32, Sink: h, Loopback: true})
	})
	for i, h := range hosts {
		h.pd = h.table.AllocPD()
		h.mem = make([]byte, 64)
		var err error
		h.mr, err = h.table.Register(h.pd, memreg.Local(h.mem), memreg.Options{Access: ib.LocalWrite | ib.RemoteWrite})
		w.must(err)
		w.hosts[addrOf(i)] = h
	}
	var qps [engines]*QP
	measure("a connected queue pair of 16 sends and 16 receives", 16<<10, func(i int) {
		if i%2 == 0 {
			qps[i], qps[i+1] = connectPair(hosts[i], hosts[i+1], true)
		}
	})
	for i := range engines {
		hosts[i].done = make([]ib.WC, 0, 1)
	}
	measure("a WRITE each way", 1<<10, func(i int) {
		h, to := hosts[i], hosts[i^1]
		h.write(qps[i], to, 8)
		h.waitOK(1)
	})
	runtime.KeepAlive(hosts)
}

func BenchmarkEngineWrite(b *testing.B) {
	for _, size := range []uint32{8, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			w := newWorld(b, 1)
			w.delay = 0
			x, y := w.newPair(Config{})
			q, _ := connectPair(x, y, true)
			b.ReportAllocs()
			for b.Loop() {
				x.write(q, y, size)
				x.waitOK(1)
			}
		})
	}
}
