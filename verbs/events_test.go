package verbs_test

import (
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/verbs"
)

func parseAddr(s string) netip.Addr { return netip.MustParseAddr(s) }

// A queue that is armed for solicited events tells of a solicited message,
// once, and of no other (IBTA 11.4.2.2).
func TestSolicitedNotification(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, 64)
		ch, err := b.dev.CreateCompChannel()
		check(t, err)
		cq, err := b.dev.CreateCQ(16, verbs.WithChannel(ch))
		check(t, err)
		qb, err := b.pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
		check(t, err)
		qa := a.newQP(verbs.QPConfig{})
		connect(t, qa, qb)
		for i := range 3 {
			check(t, qb.PostRecv(verbs.RecvWR{ID: uint64(i), SGList: []verbs.SGE{b.mr.Slice(0, 64)}}))
		}
		events := make(chan *verbs.CQ, 4)
		go func() {
			for {
				cq, err := ch.Get(t.Context())
				if err != nil {
					return
				}
				events <- cq
			}
		}()
		send := func(solicited bool) {
			t.Helper()
			check(t, qa.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("x"), Signaled: true, Solicited: solicited}))
			a.waitOK(0)
			synctest.Wait()
		}
		cq.Arm(true)
		send(false)
		if len(events) != 0 {
			t.Error("an unsolicited message raised a solicited-only notification")
		}
		send(true)
		if len(events) != 1 || <-events != cq {
			t.Error("a solicited message raised no notification")
		}
		send(true)
		if len(events) != 0 {
			t.Error("a queue that was not armed again raised a notification")
		}
		var wc [4]verbs.WC
		if n := cq.Poll(wc[:]); n != 3 {
			t.Errorf("%d completions, want 3", n)
		}
		check(t, ch.Close())
	})
}

// A message that arrives in RTR raises an event (IBTA 11.6.3.1).
func TestCommunicationEstablished(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	qa, qb := a.newQP(verbs.QPConfig{}), b.newQP(verbs.QPConfig{})
	check(t, qb.Init())
	check(t, qb.ReadyToReceive(qa.Endpoint()))
	check(t, qa.Connect(t.Context(), qb.Endpoint()))
	check(t, qa.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("x"), Remote: b.mr.RemoteAt(0), Signaled: true}))
	a.waitOK(0)
	e, err := b.dev.AsyncEvent(t.Context())
	if err != nil || e.Event != verbs.EventCommEstablished || e.QP != qb {
		t.Errorf("event %v (%v)", e, err)
	}
}
