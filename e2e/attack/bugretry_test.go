package attack

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/verbs"
)

// requester connects a queue pair of the victim to a hostile host that answers
// with reply, and posts a SEND.
func (t *Trial) requester(c verbs.ConnectConfig, reply func(p *rocev2.Packet) []byte) (*end, *hostile) {
	h := t.lab.hostile(reply == nil)
	h.mu.Lock()
	h.reply = reply
	h.mu.Unlock()
	e := t.lab.end(t.lab.victim, endConfig{})
	c.PathMTU = verbs.MTU1024
	check(e.qp.Connect(t.lab.ctx, verbs.Endpoint{Addr: h.link.Addr(), QPN: 0x77, PSN: 1}, verbs.WithConfig(c)))
	check(e.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Signaled: true, SGList: []verbs.SGE{e.mr.Slice(0, slotSize)}}))
	return e, h
}

// status waits so long for the completion of the SEND.
func (t *Trial) status(e *end, most time.Duration) (verbs.Status, time.Duration) {
	begun := time.Now() // time is virtual
	ctx, cancel := context.WithTimeout(t.lab.ctx, most)
	defer cancel()
	var wc [1]verbs.WC
	if _, err := e.scq.Wait(ctx, wc[:]); err != nil {
		if !errors.Is(err, context.DeadlineExceeded) {
			check(err)
		}
		t.broken("no completion in %v", most)
	}
	return wc[0].Status, time.Since(begun)
}

// notReady answers every request with an RNR NAK.
func notReady(to *end, code uint8) func(p *rocev2.Packet) []byte {
	return func(p *rocev2.Packet) []byte {
		return encode(rocev2.RCAcknowledge, to.qp.QPN(), p.BTH.PSN, func(a *rocev2.Packet) {
			a.AETH.Syndrome = rocev2.SyndromeRNR(code)
		})
	}
}

// A requester sent again at once when the peer was not ready, and some did so
// for ever whatever the retry count.
func TestRNRRetriesAreCountedAndWait(t *testing.T) {
	const code, wait = 12, 640 * time.Microsecond
	for count := range uint8(8) {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			bugClass(t, func(t *Trial) {
				var e *end
				first := make(chan struct{}) // e is there
				e, h := t.requester(verbs.ConnectConfig{RNRRetry: verbs.Set(count)}, func(p *rocev2.Packet) []byte {
					<-first
					return notReady(e, code)(p)
				})
				close(first)
				if count == 7 { // without end, as the standard has it: at the pace that the peer asks for
					const span = 100 * time.Millisecond
					tooMany := t.lab.happens(span, func() bool { return h.got().requests > uint64(span/wait)+2 })
					t.must(h.got().requests > 2 && !tooMany, "%d requests in %v", h.got().requests, span)
					t.must(e.qp.State() == verbs.StateRTS, "the queue pair is in state %v", e.qp.State())
					check(e.qp.Close())
					return
				}
				s, took := t.status(e, time.Second)
				t.must(s == verbs.StatusRNRRetryExcErr, "status %v", s)
				t.must(took >= time.Duration(count)*wait, "%d retries took %v", count, took)
				t.must(h.got().requests == uint64(count)+1, "retry count %d: %d requests", count, h.got().requests)
			})
		})
	}
}

// A requester asked a dead peer for ever: with retry count 7, and with a local
// ACK timeout of 0 in silence.
func TestDeadPeerIsNotAskedForEver(t *testing.T) {
	for _, c := range []struct {
		name    string
		config  verbs.ConnectConfig
		most    time.Duration
		packets uint64
	}{
		{"default", verbs.ConnectConfig{}, 2 * time.Second, 64},
		{"seven retries", verbs.ConnectConfig{Timeout: 14, RetryCount: verbs.Set(7)}, 2 * time.Second, 64},
		{"no retry", verbs.ConnectConfig{Timeout: 14, RetryCount: verbs.Set(0)}, 200 * time.Millisecond, 16},
		{"short timeout", verbs.ConnectConfig{Timeout: 1, RetryCount: verbs.Set(7)}, time.Second, 64},
	} {
		t.Run(c.name, func(t *testing.T) {
			bugClass(t, func(t *Trial) {
				e, _ := t.requester(c.config, nil)
				s, took := t.status(e, c.most)
				t.must(s == verbs.StatusRetryExcErr, "status %v after %v", s, took)
				t.must(e.qp.State() == verbs.StateErr, "state %v", e.qp.State())
				n := e.qp.Stats().TxPackets
				t.must(n > 0 && n <= c.packets, "%d packets", n)
			})
		})
	}
	t.Run("timeout none", func(t *testing.T) {
		bugClass(t, func(t *Trial) {
			e := t.lab.end(t.lab.victim, endConfig{})
			h := t.lab.hostile(true)
			modify := func(a verbs.Attr, mask verbs.AttrMask) { check(e.qp.Modify(&a, mask|verbs.AttrState)) }
			modify(verbs.Attr{State: verbs.StateInit, Port: 1}, verbs.AttrPKeyIndex|verbs.AttrPort|verbs.AttrAccess)
			modify(verbs.Attr{State: verbs.StateRTR, AV: verbs.AddressVector{DGID: h.link.Addr()}, PathMTU: verbs.MTU1024, DestQPN: 0x77},
				verbs.AttrAV|verbs.AttrPathMTU|verbs.AttrDestQPN|verbs.AttrRQPSN|verbs.AttrMaxDestRdAtomic|verbs.AttrMinRNRTimer)
			modify(verbs.Attr{State: verbs.StateRTS, Timeout: 0, RetryCount: 7, RNRRetry: 7},
				verbs.AttrTimeout|verbs.AttrRetryCount|verbs.AttrRNRRetry|verbs.AttrSQPSN|verbs.AttrMaxRdAtomic)
			check(e.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Signaled: true, SGList: []verbs.SGE{e.mr.Slice(0, slotSize)}}))
			s, took := t.status(e, 2*time.Minute)
			t.must(s == verbs.StatusRetryExcErr, "status %v after %v", s, took)
		})
	})
}
