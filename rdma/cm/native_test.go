package cm_test

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// wantNative checks what cm.Native says of a peer, and how long it takes.
func wantNative(t *testing.T, what string, h *host, peer netip.Addr, want bool, took time.Duration) {
	t.Helper()
	start := time.Now()
	if got := cm.Native(h.dev, peer); got != want {
		t.Errorf("%s: native %v; want %v", what, got, want)
	}
	if d := time.Since(start); d != took {
		t.Errorf("%s: took %v; want %v", what, d, took)
	}
}

// two makes two hosts on a network.
func two(t *testing.T, cfg fabric.Config) (a, b *host) {
	hosts := network(t, cfg, "192.0.2.1", "192.0.2.2")
	return hosts[0], hosts[1]
}

func asked(h *host) uint64 { return cm.ReadStats(h.dev).Sent }

// Both sides learn what the other is, each by one question. The answer lasts a
// second.
func TestNative(t *testing.T) {
	t.Parallel()
	const way = 100 * time.Microsecond
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t, fabric.Config{Port: fabric.PortConfig{Delay: way}})
		must(t, cm.Start(b.dev))
		wantNative(t, "first", a, b.dev.Addr(), true, 2*way)
		wantNative(t, "other side", b, a.dev.Addr(), true, 2*way)
		sent := asked(a)
		time.Sleep(900 * time.Millisecond)
		wantNative(t, "again", a, b.dev.Addr(), true, 0)
		mapped := netip.AddrFrom16(b.dev.Addr().As16())
		wantNative(t, "as a GID", a, mapped, true, 0)
		if n := asked(a); n != sent {
			t.Errorf("it was asked again: %d, then %d messages", sent, n)
		}
		time.Sleep(200 * time.Millisecond)
		wantNative(t, "later", a, b.dev.Addr(), true, 2*way)
		if a, b := cm.IDs(a.dev), cm.IDs(b.dev); a != 0 || b != 0 {
			t.Errorf("%d and %d IDs are left", a, b)
		}
	})
}

// A peer that is another thing a second later is seen as such.
func TestNativeNoMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t, fabric.Config{})
		must(t, cm.Start(b.dev))
		wantNative(t, "first", a, b.dev.Addr(), true, 0)
		b.port.Cut()
		time.Sleep(time.Second)
		wantNative(t, "silent", a, b.dev.Addr(), false, 2*time.Millisecond)
	})
}

// A peer that is not there costs a wait once in a while, and leaves nothing.
func TestNativeSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t, fabric.Config{})
		peer := b.dev.Addr() // has no connection manager
		for range 3 {
			wantNative(t, "first", a, peer, false, 2*time.Millisecond)
			for range 9 {
				time.Sleep(time.Second)
				wantNative(t, "again", a, peer, false, 0)
			}
			if n := cm.IDs(a.dev); n != 0 {
				t.Errorf("%d IDs are left", n)
			}
			time.Sleep(3 * time.Second)
		}
		if n := asked(a); n != 6 { // each goes twice
			t.Errorf("%d messages", n)
		}
	})
}

// An answer that comes too late is there for the next call, which waits as long
// as a round trip takes.
func TestNativeFarAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t, fabric.Config{Port: fabric.PortConfig{Delay: 2 * time.Millisecond}})
		must(t, cm.Start(b.dev))
		wantNative(t, "first", a, b.dev.Addr(), false, 2*time.Millisecond)
		wantNative(t, "before the answer", a, b.dev.Addr(), false, 0)
		time.Sleep(100 * time.Millisecond)
		wantNative(t, "after it", a, b.dev.Addr(), true, 0)
		time.Sleep(2 * time.Second)
		wantNative(t, "later", a, b.dev.Addr(), true, 4*time.Millisecond)
	})
}

// What a connection has said of a peer is known at once: before a question, and
// while one is asked.
func TestNativeMet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t, fabric.Config{Port: fabric.PortConfig{Delay: 2 * time.Millisecond}})
		cm.Met(a.dev, b.dev.Addr())
		wantNative(t, "met", a, b.dev.Addr(), true, 0)
		wantNative(t, "asked", b, a.dev.Addr(), false, 2*time.Millisecond)
		cm.Met(b.dev, a.dev.Addr())
		wantNative(t, "met meanwhile", b, a.dev.Addr(), true, 0)
		time.Sleep(100 * time.Millisecond) // the answer comes
		wantNative(t, "later", b, a.dev.Addr(), true, 0)
	})
}

// One question serves all calls that wait for its answer, and none holds up
// those for other peers.
func TestNativeTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hosts := network(t, fabric.Config{Port: fabric.PortConfig{Delay: 100 * time.Microsecond}}, "192.0.2.1", "192.0.2.2", "192.0.2.3")
		a, b, silent := hosts[0], hosts[1], hosts[2]
		must(t, cm.Start(b.dev))
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { wantNative(t, "one of many", a, b.dev.Addr(), true, 200*time.Microsecond) })
			all.Go(func() { wantNative(t, "silent", a, silent.dev.Addr(), false, 2*time.Millisecond) })
		}
		all.Wait()
		if n := asked(a); n != 2 {
			t.Errorf("%d questions", n)
		}
	})
}

// What cannot be asked is not.
func TestNativeWithoutAQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, _ := two(t, fabric.Config{})
		for _, peer := range []string{"0.0.0.0", "224.0.0.1", "2001:db8::1", "::"} {
			wantNative(t, peer, a, netip.MustParseAddr(peer), false, 0)
		}
		wantNative(t, "no address", a, netip.Addr{}, false, 0)
		wantNative(t, "own address", a, a.dev.Addr(), true, 0)
		if n := asked(a); n != 0 {
			t.Errorf("%d messages", n)
		}
		if cm.Native(nil, a.dev.Addr()) {
			t.Error("without a device")
		}
		must(t, a.dev.Close())
		wantNative(t, "closed", a, netip.MustParseAddr("192.0.2.9"), false, 0)
	})
}

// No call waits any longer when its device is closed.
func TestNativeWhileItCloses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t, fabric.Config{})
		var all sync.WaitGroup
		all.Go(func() { wantNative(t, "closed", a, b.dev.Addr(), false, time.Millisecond) })
		time.Sleep(time.Millisecond)
		must(t, a.dev.Close())
		all.Wait()
	})
}

// answerer answers the questions of cm.Native by hand.
func answerer(h *host, answer func(q mad.SIDRREQ) [][]byte) {
	qp, err := h.pd.CreateQP(verbs.QPConfig{Type: verbs.GSI, SendCQ: h.cq, RecvCQ: h.cq, MaxInline: mad.Len})
	must(h.t, err)
	const slot = verbs.GRHLen + mad.Len
	must(h.t, qp.Init())
	must(h.t, qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{h.mr.Slice(0, slot)}}))
	must(h.t, qp.Activate(0))
	go func() {
		for {
			var wc [4]verbs.WC
			n, err := h.cq.Wait(h.t.Context(), wc[:])
			if err != nil {
				return
			}
			for _, c := range wc[:n] {
				if c.Opcode != verbs.WCRecv {
					continue
				}
				var q mad.SIDRREQ
				if c.Status != verbs.StatusSuccess || q.Parse(h.mr.Bytes()[verbs.GRHLen:c.ByteLen]) != nil {
					return
				}
				ah, err := h.pd.AHFromWC(c, h.mr.Bytes())
				if err != nil {
					return
				}
				list := answer(q)
				if qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{h.mr.Slice(0, slot)}}) != nil {
					return
				}
				for _, b := range list {
					if qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: b, AH: ah, RemoteQPN: 1}) != nil {
						return
					}
				}
				ah.Close()
			}
		}
	}()
}

// Other peers answer in many ways, hostile ones too.
func TestNativeAnswers(t *testing.T) {
	t.Parallel()
	us := mad.ECE{VendorID: cm.Vendor, Options: 1}
	rep := func(q mad.SIDRREQ, change func(*mad.SIDRREP)) [][]byte {
		m := mad.SIDRREP{TransactionID: q.TransactionID, RequestID: q.RequestID, ServiceID: q.ServiceID, Status: mad.SIDRUnsupported}
		change(&m)
		return [][]byte{m.AppendTo(nil)}
	}
	for what, c := range map[string]struct {
		answer func(q mad.SIDRREQ) [][]byte
		native bool
		silent bool
	}{
		"Linux": {answer: func(q mad.SIDRREQ) [][]byte { return rep(q, func(*mad.SIDRREP) {}) }},
		"another vendor": {answer: func(q mad.SIDRREQ) [][]byte {
			return rep(q, func(m *mad.SIDRREP) { m.ECE = mad.ECE{VendorID: 0x15b3, Options: 1} })
		}},
		"another option": {answer: func(q mad.SIDRREQ) [][]byte {
			return rep(q, func(m *mad.SIDRREP) { m.ECE = mad.ECE{VendorID: cm.Vendor, Options: 2} })
		}},
		"us": {native: true, answer: func(q mad.SIDRREQ) [][]byte { return rep(q, func(m *mad.SIDRREP) { m.ECE = us }) }},
		"us, then not": {native: true, answer: func(q mad.SIDRREQ) [][]byte {
			return append(rep(q, func(m *mad.SIDRREP) { m.ECE = us }), rep(q, func(*mad.SIDRREP) {})...)
		}},
		"another question": {silent: true, answer: func(q mad.SIDRREQ) [][]byte {
			return rep(q, func(m *mad.SIDRREP) { m.ECE, m.RequestID = us, m.RequestID^1 })
		}},
		"the question": {silent: true, answer: func(q mad.SIDRREQ) [][]byte { return [][]byte{q.AppendTo(nil)} }},
		"a rejection": {silent: true, answer: func(q mad.SIDRREQ) [][]byte {
			m := mad.REJ{TransactionID: q.TransactionID, RemoteID: q.RequestID, Reason: 8}
			return [][]byte{m.AppendTo(nil)}
		}},
		"an error of another class": {silent: true, answer: func(q mad.SIDRREQ) [][]byte {
			b := q.AppendTo(nil)
			b[1], b[3], b[5] = 4, 0x81, 0x0c
			return [][]byte{b}
		}},
		"nonsense": {silent: true, answer: func(q mad.SIDRREQ) [][]byte { return [][]byte{{1}, make([]byte, mad.Len), {}} }},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, b := two(t, fabric.Config{})
			answerer(b, c.answer)
			took := time.Duration(0)
			if c.silent {
				took = 2 * time.Millisecond
			}
			wantNative(t, what, a, b.dev.Addr(), c.native, took)
			wantNative(t, what+" again", a, b.dev.Addr(), c.native, 0)
		})
	}
}

// A host that does not see the question cannot answer it: the address of the
// answer is checked.
func TestNativeForged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hosts := network(t, fabric.Config{}, "192.0.2.1", "192.0.2.2", "192.0.2.3")
		a, b, third := hosts[0], hosts[1], hosts[2]
		qp, err := third.pd.CreateQP(verbs.QPConfig{Type: verbs.GSI, SendCQ: third.cq, RecvCQ: third.cq, MaxInline: mad.Len})
		must(t, err)
		must(t, qp.Activate(0))
		ah, err := third.pd.CreateAH(verbs.AddressVector{DGID: a.dev.Addr()})
		must(t, err)
		answerer(b, func(q mad.SIDRREQ) [][]byte { // knows the number, but has another address
			m := mad.SIDRREP{TransactionID: q.TransactionID, RequestID: q.RequestID, ServiceID: q.ServiceID,
				Status: mad.SIDRUnsupported, ECE: mad.ECE{VendorID: cm.Vendor, Options: 1}}
			must(t, qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: m.AppendTo(nil), AH: ah, RemoteQPN: 1}))
			return nil
		})
		wantNative(t, "forged", a, b.dev.Addr(), false, 2*time.Millisecond)
		if n := cm.ReadStats(a.dev).WrongAddress; n != 1 {
			t.Errorf("%d from a wrong address", n)
		}
	})
}

// A program that connects to ever other addresses has bounded state, and
// others are answered meanwhile.
func TestNativeIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t, fabric.Config{Port: fabric.PortConfig{Delay: 50 * time.Microsecond}})
		must(t, cm.Start(b.dev))
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				for j := range 100 {
					cm.Native(a.dev, netip.MustParseAddr(fmt.Sprintf("198.51.%d.%d", i, j)))
				}
			})
		}
		for range 50 {
			time.Sleep(3 * time.Millisecond)
			if !cm.Native(a.dev, b.dev.Addr()) {
				t.Error("not native in the crowd")
			}
			if n := cm.IDs(a.dev); n > 64 {
				t.Fatalf("%d IDs", n)
			}
		}
		all.Wait()
		if n := cm.Acquaintances(a.dev); n > 1024 {
			t.Errorf("%d addresses are known", n)
		}
		time.Sleep(2 * time.Second)
		if n := cm.IDs(a.dev); n != 0 {
			t.Errorf("%d IDs are left", n)
		}
	})
}
