// Package stage is where the scripts of a conformance test play: it has a queue
// pair made by the target, sends single packets just as a script gives them,
// and waits for what must come. It knows no rule.
package stage

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// Times are how long is waited.
type Times struct {
	Answer time.Duration // for an answer that must come
	Quiet  time.Duration // in which nothing may come
}

// Stage has the link to a peer. It plays one script at a time.
type Stage struct {
	wire  *wire
	times Times
}

// New makes a stage on a link, which belongs to it from now on.
func New(link transport.Link, peer netip.Addr, t Times) *Stage {
	return &Stage{newWire(link, peer), t}
}

// Close closes the link.
func (s *Stage) Close() error { return s.wire.close() }

// Silence says why nothing has come from the peer since the stage was made; nil
// if something has.
func (s *Stage) Silence() error { return s.wire.silence() }

// Maker makes queue pairs at the peer: a [Conn] or a [Listener].
type Maker interface {
	Close() error
	// Err says why it makes nothing more; nil if it does.
	Err() error

	make(*Scene, Options) (Pair, rocev2.PSN, error)
}

// Play plays a script with a queue pair that m makes. It returns a capture, as
// pcapng, unless the script has passed.
func (s *Stage) Play(ctx context.Context, m Maker, t Target, script func(*Scene), r *Record) []byte {
	conn, _ := m.(*Conn)
	if conn != nil {
		defer context.AfterFunc(ctx, func() { conn.Close() })()
	}
	// Late packets of another script are for another number.
	qpn := rocev2.QPN(0x100 + rand.IntN(1<<24-0x200))
	ring := s.wire.begin(qpn)
	scene := &Scene{ctx: ctx, times: s.times, wire: s.wire, maker: m, conn: conn, target: t, qpn: qpn, record: r}
	r.Verdict = Pass
	script(scene)
	if ctx.Err() != nil && r.Verdict == Pass {
		scene.Untested(context.Cause(ctx))
	}
	if lost := s.wire.end(); lost > 0 {
		r.step("dropped   %d packets more than this side keeps", lost)
	}
	if r.Verdict == Pass {
		r.Sent, r.Steps = "", nil
		return nil
	}
	var b bytes.Buffer
	if _, err := ring.WriteTo(&b); err != nil {
		return nil
	}
	return b.Bytes()
}
