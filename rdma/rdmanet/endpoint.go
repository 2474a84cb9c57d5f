package rdmanet

import (
	"encoding/binary"
	"fmt"

	"github.com/gosoftroce/rocev2/memreg/mapping"
	"github.com/gosoftroce/rocev2/rdma/rdmanet/rsocket"
	"github.com/gosoftroce/rocev2/verbs"
)

// endpoint is what a connection has of a device. The protection domain is its
// own, so that no peer reaches the memory of another connection.
type endpoint struct {
	pd   *verbs.PD
	cq   *verbs.CQ
	qp   *verbs.QP
	ring *verbs.MR // the ring, and after it the slots

	memory *mapping.Mapping // of ring
	bytes  []byte           // all of memory

	virtual bool // the device is of a network in virtual time
}

// alloc makes memory that is there until it is closed. It is not the device's:
// a program may be in the middle of a Read when the device is closed.
func (ep *endpoint) alloc(size int, access verbs.Access, told ...verbs.RegOption) (*verbs.MR, *mapping.Mapping, error) {
	m, err := mapping.Anonymous(size, mapping.Options{Reserve: true})
	if err != nil {
		return nil, nil, err
	}
	mr, err := ep.pd.RegisterMemory(m.Data(), access, told...)
	if err != nil {
		m.Close()
		return nil, nil, err
	}
	return mr, m, nil
}

// newEndpoint makes what a connection needs. The queue pair is in INIT, and its
// first receives are posted. number and ring are what the peer was told
// already, if number is not 0.
func newEndpoint(dev *verbs.Device, opts Options, number verbs.QPN, ring promise) (ep endpoint, err error) {
	defer func() {
		if err != nil {
			ep.close()
			err = fmt.Errorf("rdmanet: %w", err)
		}
	}()
	ep.virtual = verbs.HCA(dev).Tasks().Virtual()
	receives := opts.receives()
	if ep.pd, err = dev.AllocPD(); err != nil {
		return ep, err
	}
	if ep.cq, err = dev.CreateCQ(receives + sendDepth); err != nil {
		return ep, err
	}
	var told []verbs.RegOption
	if number != 0 {
		told = []verbs.RegOption{verbs.WithRKey(ring.key), verbs.WithIOVA(ring.addr)}
	}
	ep.ring, ep.memory, err = ep.alloc(opts.RecvBuffer+rsocket.SlotsLen, verbs.LocalWrite|verbs.RemoteWrite, told...)
	if err != nil {
		return ep, err
	}
	ep.bytes = ep.memory.Data()
	ep.qp, err = ep.pd.CreateQP(verbs.QPConfig{
		SendCQ: ep.cq, RecvCQ: ep.cq,
		MaxSendWR: sendDepth, MaxSendSGE: 2, MaxInline: inline,
		MaxRecvWR: receives, MaxRecvSGE: 1, Number: number,
	})
	if err != nil {
		return ep, err
	}
	if err = ep.qp.Init(verbs.WithConfig(verbs.ConnectConfig{Access: verbs.RemoteWrite})); err != nil {
		return ep, err
	}
	return ep, ep.postRecvs(opts.firstCredits() + rsocket.MaxControl)
}

// noBuffers are receives as the protocol needs them: for WRITEs that write
// elsewhere.
var noBuffers [32]verbs.RecvWR

func (ep *endpoint) postRecvs(n int) error {
	for n > 0 {
		some := min(n, len(noBuffers))
		if err := ep.qp.PostRecv(noBuffers[:some]...); err != nil {
			return err
		}
		n -= some
	}
	return nil
}

// block is what the peer must know.
func (ep *endpoint) block(opts Options) rsocket.Block {
	return block(&opts, promise{ep.ring.RKey(), ep.ring.Addr()})
}

func block(opts *Options, ring promise) rsocket.Block {
	key := uint32(ring.key)
	return rsocket.Block{
		BigEndian: binary.NativeEndian.Uint16([]byte{0, 1}) == 1,
		IOMap:     true,
		Features:  rsocket.FeatureDrains,
		Credits:   uint16(opts.firstCredits()),
		Slots:     rsocket.Memory{Addr: ring.addr + uint64(opts.RecvBuffer), Key: key, Length: rsocket.Slots},
		Ring:      rsocket.Memory{Addr: ring.addr, Key: key, Length: uint32(opts.RecvBuffer / 2)},
	}
}

// slots are those that the peer writes.
func (ep *endpoint) slots() []byte {
	return ep.bytes[len(ep.bytes)-rsocket.SlotsLen:]
}

// close frees everything. The ring must not be used any more.
func (ep *endpoint) close() {
	if ep.qp != nil {
		ep.qp.Close()
	}
	if ep.cq != nil {
		ep.cq.Close()
	}
	if ep.pd != nil {
		ep.pd.Close()
	}
	if ep.memory != nil {
		ep.memory.Close()
	}
}
