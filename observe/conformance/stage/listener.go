package stage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// Listener is a program at the peer that takes connections by the connection
// manager and then waits, such as rping -s -P. It makes queue pairs without
// knowing of the test, so there is nothing to ask it for: what the peer answers
// is all that is seen. Requests have no data then, because no key is known.
type Listener struct {
	Port uint16 // of the RDMA port space TCP

	local, remote mad.CommID
	qpn           rocev2.QPN // of the peer; 0 while there is no connection
	transaction   uint64
	wire          *wire
	patience      time.Duration
	err           error
}

// The management queue pair.
const (
	gsiQPN  = 1
	gsiQKey = 0x80010000
)

// Err says why there was no connection.
func (l *Listener) Err() error { return l.err }

func (l *Listener) make(s *Scene, o Options) (p Pair, psn rocev2.PSN, err error) {
	p, psn, err = l.connect(s, o)
	l.err = err
	return p, psn, err
}

// connect connects to the program (IBTA 12.9): REQ, REP, RTU. The peer chooses
// the PSN that this side sends first.
func (l *Listener) connect(s *Scene, o Options) (Pair, rocev2.PSN, error) {
	l.wire, l.patience = s.wire, s.times.Answer
	l.local, l.transaction = mad.CommID(rand.Uint32()|1), rand.Uint64()
	mtu, err := rocev2.MTUOf(o.MTU)
	if err != nil {
		return Pair{}, 0, err
	}
	local := s.wire.link.Addr().WithZone("")
	header := mad.IPHeader{SourcePort: 40000, Source: local, Destination: s.wire.peer}
	req := mad.REQ{
		TransactionID: l.transaction, LocalID: l.local, ServiceID: mad.ServiceID(mad.PortSpaceTCP)<<16 | mad.ServiceID(l.Port), LocalGUID: mad.GUID(rand.Uint64() | 1),
		LocalQPN: s.qpn, ResponderResources: 4, InitiatorDepth: 4, RemoteResponseTimeout: 20, LocalResponseTimeout: 20,
		StartingPSN: TargetPSN, RetryCount: uint8(o.Retry), RNRRetryCount: uint8(o.RNRRetry), PKey: rocev2.DefaultPKey, PathMTU: uint8(mtu), MaxRetries: 15,
		Primary: mad.Path{LocalGID: local, RemoteGID: s.wire.peer, HopLimit: 64, AckTimeout: uint8(o.Timeout)}, Private: header.AppendTo(nil),
	}
	answer, err := l.ask(s.ctx, req.AppendTo(nil))
	if err != nil {
		return Pair{}, 0, err
	}
	rep, ok := answer.(*mad.REP)
	if !ok {
		return Pair{}, 0, fmt.Errorf("the answer to the REQ is no REP but %T", answer)
	}
	l.remote, l.qpn = rep.LocalID, rep.LocalQPN
	rtu := mad.RTU{TransactionID: l.transaction, LocalID: l.local, RemoteID: l.remote}
	return Pair{QPN: rep.LocalQPN}, rep.StartingPSN, l.send(rtu.AppendTo(nil))
}

// Close ends the connection, so that the program is free again. Its answer is
// waited for, but it may be lost.
func (l *Listener) Close() error {
	if l.qpn == 0 {
		return nil
	}
	dreq := mad.DREQ{TransactionID: l.transaction, LocalID: l.local, RemoteID: l.remote, RemoteQPN: l.qpn}
	l.qpn = 0
	_, err := l.ask(context.Background(), dreq.AppendTo(nil))
	return err
}

func (l *Listener) send(m []byte) error {
	p := rocev2.Packet{
		BTH:  rocev2.BTH{Opcode: rocev2.UDSendOnly, MigReq: true, PKey: rocev2.DefaultPKey, DestQPN: gsiQPN, PSN: rocev2.PSN(rand.IntN(1 << 24))},
		DETH: rocev2.DETH{QKey: gsiQKey, SrcQPN: gsiQPN}, Payload: m,
	}
	return l.wire.send(p.AppendTo(nil), 0, nil)
}

// ask sends a message, several times if need be, and returns what answers it.
func (l *Listener) ask(ctx context.Context, m []byte) (mad.Message, error) {
	const tries = 4
	for range tries {
		if err := l.send(m); err != nil {
			return nil, err
		}
		timer := time.NewTimer(l.patience / tries * 2)
		answer, err := l.await(ctx, timer.C)
		timer.Stop()
		if answer != nil || err != nil {
			return answer, err
		}
	}
	return nil, fmt.Errorf("the connection manager of %v does not answer", l.wire.peer)
}

// await returns the next message for this connection; nil if there is none.
func (l *Listener) await(ctx context.Context, end <-chan time.Time) (mad.Message, error) {
	for {
		select {
		case b := <-l.wire.mads:
			h, m, err := mad.Parse(b)
			if err != nil || h.Check() != nil {
				continue
			}
			switch m := m.(type) {
			case *mad.REP:
				if m.RemoteID == l.local {
					return m, nil
				}
			case *mad.REJ:
				if m.RemoteID == l.local {
					return nil, fmt.Errorf("the connection manager refuses: %v", m.Reason)
				}
			case *mad.DREP:
				if m.RemoteID == l.local {
					return m, nil
				}
			}
		case <-end:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
