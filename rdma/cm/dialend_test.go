package cm_test

import (
	"errors"
	"net/netip"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// A peer that accepts and disconnects in one breath: when Dial has returned its
// error the queue pair is not touched any more, so the program can use it for
// the next dial.
func TestDialThatEndsAtOnce(t *testing.T) { // not parallel: it has one processor
	// The goroutine that ends the connection runs when Dial waits for it,
	// not beside it.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		hosts := network(t, fabric.Config{}, "192.0.2.1", "192.0.2.2")
		client, server := hosts[0], hosts[1]
		fickle(server)
		for n := range 50 {
			q := client.qp(verbs.RC)
			_, err := cm.Dial(client.context(), q, netip.AddrPortFrom(server.dev.Addr(), 7), cm.DialConfig{NoECE: true})
			if err == nil {
				t.Fatalf("dial %d succeeds: it did not get the REP and the DREQ together", n)
			}
			must(t, q.Modify(&verbs.Attr{State: verbs.StateReset}, verbs.AttrState))
			must(t, q.Init())
			synctest.Wait()
			if s := q.State(); s != verbs.StateInit {
				t.Fatalf("after dial %d the queue pair goes to %v behind the program's back (%v)", n, s, err)
			}
			must(t, q.Close())
		}
	})
}

// fickle answers each REQ with a REP and then a DREQ.
func fickle(h *host) {
	answering(h, func(m *mad.REQ, local mad.CommID) []mad.Message {
		return []mad.Message{
			&mad.REP{TransactionID: m.TransactionID, LocalID: local, RemoteID: m.LocalID, LocalQPN: 77, LocalGUID: 5, ResponderResources: 1, InitiatorDepth: 1},
			&mad.DREQ{TransactionID: m.TransactionID, LocalID: local, RemoteID: m.LocalID, RemoteQPN: m.LocalQPN},
		}
	})
}

// answering has the host answer each REQ with messages of the test's, two at
// most.
func answering(h *host, answer func(m *mad.REQ, local mad.CommID) []mad.Message) {
	q, err := h.pd.CreateQP(verbs.QPConfig{Type: verbs.GSI, SendCQ: h.cq, RecvCQ: h.cq, MaxSendWR: 16, MaxRecvWR: 16})
	must(h.t, err)
	must(h.t, q.Activate(0))
	const slot = 512
	post := func(id uint64) error {
		return q.PostRecv(verbs.RecvWR{ID: id, SGList: []verbs.SGE{h.mr.Slice(int(id)*slot, slot)}})
	}
	for i := range uint64(8) {
		must(h.t, post(i))
	}
	// The device may be closed at the end of the test, and not before.
	over := func(err error) bool {
		if !errors.Is(err, verbs.ErrClosed) {
			must(h.t, err)
		}
		return err != nil
	}
	ctx := h.context()
	go func() {
		for local := mad.CommID(1); ; {
			var wc [1]verbs.WC
			if _, err := h.cq.Wait(ctx, wc[:]); err != nil {
				return
			}
			if wc[0].Opcode != verbs.WCRecv {
				continue
			}
			b := h.mr.Bytes()[wc[0].ID*slot:][:wc[0].ByteLen]
			grh, err := verbs.ParseGRH(b)
			var m mad.REQ
			if err == nil && m.Parse(b[verbs.GRHLen:]) == nil {
				local++
				ah, err := h.pd.CreateAH(verbs.AddressVector{DGID: grh.Src})
				if over(err) {
					return
				}
				var wrs []verbs.SendWR
				for i, m := range answer(&m, local) {
					at := (16 + 2*int(local%8) + i) * slot
					m.AppendTo(h.mr.Bytes()[at:at])
					wrs = append(wrs, verbs.SendWR{Opcode: verbs.OpSend, SGList: []verbs.SGE{h.mr.Slice(at, mad.Len)}, AH: ah, RemoteQPN: 1, RemoteQKey: verbs.HighQKey})
				}
				if over(q.PostSend(wrs...)) {
					return
				}
			}
			if over(post(wc[0].ID)) {
				return
			}
		}
	}()
}

// A request is confirmed when its peer has answered the acceptance, and not
// before: a forged one never is.
func TestConfirmed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hosts := network(t, fabric.Config{}, "192.0.2.1", "192.0.2.2", "192.0.2.3")
		client, server, liar := hosts[0], hosts[1], hosts[2]
		l, addr := server.listen(cm.ListenConfig{})
		got := server.serve(l, cm.AcceptConfig{})
		c, err := cm.Dial(client.context(), client.qp(verbs.RC), addr, cm.DialConfig{})
		must(t, err)
		honest := <-got
		must(t, honest.err)
		synctest.Wait()
		got = server.serve(l, cm.AcceptConfig{})
		newFlooder(liar, addr, 1).burst(1)
		forged := <-got
		must(t, forged.err)
		synctest.Wait()
		if !honest.req.Confirmed() || forged.req.Confirmed() {
			t.Errorf("honest %v, forged %v", honest.req.Confirmed(), forged.req.Confirmed())
		}
		must(t, c.Close())
	})
}
