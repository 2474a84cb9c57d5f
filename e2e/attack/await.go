package attack

import (
	"context"
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/verbs"
)

const (
	giveUpAfter = time.Minute // for what must happen
	pollTime    = 200 * time.Microsecond
)

// await polls until cond holds. It aborts the trial when that takes too long.
func (l *lab) await(what string, cond func() bool) {
	if !l.happens(giveUpAfter, cond) {
		check(fmt.Errorf("no %s in %v", what, giveUpAfter))
	}
}

// happens polls until cond holds, or for d, and reports whether it did.
func (l *lab) happens(d time.Duration, cond func() bool) bool {
	for end := time.Now().Add(d); !cond(); {
		if l.ctx.Err() != nil {
			panic(aborted{l.ctx.Err()})
		}
		if err := l.wireErr.Load(); err != nil {
			panic(aborted{*err})
		}
		if time.Now().After(end) {
			return false
		}
		time.Sleep(pollTime)
	}
	return true
}

// wait takes one completion.
func (l *lab) wait(cq *verbs.CQ) (verbs.WC, error) {
	ctx, cancel := context.WithTimeout(l.ctx, giveUpAfter)
	defer cancel()
	var wc [1]verbs.WC
	_, err := cq.Wait(ctx, wc[:])
	return wc[0], err
}

// fence returns when the victim has handled all packets sent before, and has
// answered.
func (l *lab) fence() {
	for i, link := range l.tapped[l.victim.addr].links {
		bth := rocev2.BTH{Opcode: rocev2.RCSendOnly, PKey: rocev2.DefaultPKey, DestQPN: rocev2.QPN(i)}
		seen := link.markers()
		l.await("packet at the victim", func() bool {
			l.forge(l.ghost, markerPort, bth.AppendTo(nil)) // a full socket buffer may lose it
			return l.happens(10*pollTime, func() bool { return link.markers() > seen })
		})
	}
	const rounds = 5
	quiet, sent := 0, l.victim.dev.Stats().Link.TxPackets // Stats waits for what is being answered
	l.happens(giveUpAfter, func() bool {
		if now := l.victim.dev.Stats().Link.TxPackets; now != sent {
			quiet, sent = 0, now
		}
		quiet++
		return quiet > rounds
	})
}
