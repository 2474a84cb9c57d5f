// Package ping asks a RoCEv2 peer for an answer that any gives: it sends a
// SIDR_REQ (IBTA 12.11) to queue pair 1 of the peer, for a service that no
// program can listen on. The connection manager of a kernel, of an adapter's
// host, and of this software answers that the service is not supported. The
// peer needs no program for that. It needs a connection manager: a kernel has
// one when its module rdma_cm (or ib_cm) is loaded.
//
// A pinger has queue pair 1 of its device, so the device has no connection
// manager meanwhile: requests to connect get no answer.
package ping

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

const (
	// The service asked for: port 0 of datagrams. To listen on port 0 means
	// "choose one", so no listener has it.
	service = mad.ServiceID(mad.PortSpaceUDP) << 16

	receives = 32 // posted at a time: any host may send to QP 1
	slot     = verbs.GRHLen + mad.Len
	fullPKey = 0xffff

	// maxOutstanding bounds the requests whose answer is waited for.
	maxOutstanding = 1024
)

// Pinger asks one peer.
type Pinger struct {
	peer netip.Addr
	dev  *verbs.Device
	pd   *verbs.PD
	cq   *verbs.CQ
	qp   *verbs.QP
	ah   *verbs.AddressHandle
	mr   *verbs.MR // the receives, then what is sent
	wc   [8]verbs.WC
	id   mad.CommID // of the last request; the next one has step more
	step mad.CommID

	waiting map[mad.CommID]request
}

type request struct {
	seq  int
	sent time.Time
}

// Reply is an answer of the peer.
type Reply struct {
	Seq      int // which request it answers, from 1 on
	Bytes    int // of the management datagram
	Status   mad.SIDRStatus
	HopLimit uint8 // as it arrived; TTL of IPv4
	RTT      time.Duration
}

// New makes a pinger on a device for a peer. The device's queue pair 1 must be
// free; else the error wraps verbs.ErrGSIInUse.
func New(dev *verbs.Device, peer netip.Addr) (*Pinger, error) {
	p := &Pinger{peer: peer.Unmap().WithZone(""), dev: dev, id: mad.CommID(rand.Uint32() | 1), step: 1, waiting: make(map[mad.CommID]request)}
	if lease, shared := verbs.HCA(dev).Port().Lease(); shared { // answers find it by the low 8 bits
		p.id, p.step = p.id&^0xff|mad.CommID(lease.Slot), 0x100
	}
	if err := p.setUp(peer); err != nil {
		p.Close()
		return nil, fmt.Errorf("ping %v: %w", peer, err)
	}
	return p, nil
}

func (p *Pinger) setUp(peer netip.Addr) (err error) {
	if p.pd, err = p.dev.AllocPD(); err != nil {
		return err
	}
	if p.cq, err = p.dev.CreateCQ(2 * receives); err != nil {
		return err
	}
	if p.mr, err = p.pd.AllocMemory((receives+1)*slot, verbs.LocalWrite); err != nil {
		return err
	}
	if p.qp, err = p.pd.CreateQP(verbs.QPConfig{Type: verbs.GSI, SendCQ: p.cq, RecvCQ: p.cq, MaxRecvWR: receives}); err != nil {
		return err
	}
	if err := p.qp.Init(); err != nil {
		return err
	}
	for i := range receives {
		if err := p.postRecv(i); err != nil {
			return err
		}
	}
	if err := p.qp.Activate(0); err != nil { // the Q_Key of QP 1 is the standard's
		return err
	}
	p.ah, err = p.pd.CreateAH(verbs.AddressVector{DGID: peer})
	return err
}

func (p *Pinger) postRecv(i int) error {
	return p.qp.PostRecv(verbs.RecvWR{ID: uint64(i), SGList: []verbs.SGE{p.mr.Slice(i*slot, slot)}})
}

// Close gives the queue pair back.
func (p *Pinger) Close() error {
	var errs []error
	if p.qp != nil {
		errs = append(errs, p.qp.Close())
	}
	if p.ah != nil {
		errs = append(errs, p.ah.Close())
	}
	if p.mr != nil {
		errs = append(errs, p.mr.Close())
	}
	if p.cq != nil {
		errs = append(errs, p.cq.Close())
	}
	if p.pd != nil {
		errs = append(errs, p.pd.Close())
	}
	return errors.Join(errs...)
}

// send asks once. hops is the hop limit, 0 the system's.
func (p *Pinger) send(seq int, hops uint8) error {
	if av := p.ah.Query(); av.HopLimit != hops {
		av.HopLimit = hops
		if err := p.ah.Modify(av); err != nil {
			return err
		}
	}
	p.id += p.step
	header := mad.IPHeader{Source: p.dev.Addr().WithZone(""), Destination: p.peer}
	req := mad.SIDRREQ{
		TransactionID: uint64(p.id), RequestID: p.id, PKey: fullPKey, ServiceID: service, Private: header.AppendTo(nil),
	}
	at := receives * slot
	req.AppendTo(p.mr.Bytes()[at:at])
	p.waiting[p.id] = request{seq: seq, sent: time.Now()}
	return p.qp.PostSend(verbs.SendWR{
		ID: receives, Opcode: verbs.OpSend, Signaled: true, SGList: []verbs.SGE{p.mr.Slice(at, mad.Len)}, AH: p.ah, RemoteQPN: 1,
	})
}

// take waits until a time for completions, and calls reply for answers.
func (p *Pinger) take(ctx context.Context, until time.Time, reply func(Reply)) error {
	limit, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	n, err := p.cq.Wait(limit, p.wc[:])
	now := time.Now()
	if err != nil {
		if ctx.Err() == nil && limit.Err() != nil {
			return nil
		}
		return err
	}
	for i := range p.wc[:n] {
		wc := &p.wc[i]
		if err := wc.Err(); err != nil {
			return err
		}
		if wc.ID == receives {
			continue // the request has left
		}
		at := int(wc.ID) * slot
		if r, ok := p.parse(p.mr.Bytes()[at:at+int(wc.ByteLen)], now); ok {
			reply(r)
		}
		if err := p.postRecv(int(wc.ID)); err != nil {
			return err
		}
	}
	return nil
}

// parse reads what came to queue pair 1, and reports whether it answers a
// request. Anything else is not for us.
func (p *Pinger) parse(b []byte, now time.Time) (Reply, bool) {
	grh, err := verbs.ParseGRH(b)
	if err != nil || grh.Src.Unmap().WithZone("") != p.peer {
		return Reply{}, false
	}
	var rep mad.SIDRREP
	if err := rep.Parse(b[verbs.GRHLen:]); err != nil {
		return Reply{}, false
	}
	r, ok := p.waiting[rep.RequestID]
	if !ok {
		return Reply{}, false
	}
	delete(p.waiting, rep.RequestID)
	return Reply{Seq: r.seq, Bytes: len(b) - verbs.GRHLen, Status: rep.Status, HopLimit: grh.HopLimit, RTT: now.Sub(r.sent)}, true
}

// Once asks once and waits for the answer at most for timeout. ok is false if
// none came. hops is the hop limit of the request, 0 the system's.
func (p *Pinger) Once(ctx context.Context, hops uint8, timeout time.Duration) (r Reply, ok bool, err error) {
	clear(p.waiting)
	if err := p.send(1, hops); err != nil {
		return r, false, err
	}
	until := time.Now().Add(timeout)
	for !ok && time.Now().Before(until) {
		if err := p.take(ctx, until, func(got Reply) { r, ok = got, true }); err != nil {
			return r, false, err
		}
	}
	return r, ok, nil
}
