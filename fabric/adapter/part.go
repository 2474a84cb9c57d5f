package adapter

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/internal/mailbox"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// part is what the adapters of a part of the network share. Parts of a network
// that is divided run at the same time.
type part struct {
	a *Adapters

	// The memory of all hosts where there are no bytes.
	table *memreg.Table
	pd    *memreg.PD
	mr    *memreg.Region

	records records
	tx      *transport.TxBatch // of the packet that is being sent
	rx      [1]transport.RxPacket
	scratch [rocev2.MaxPacketLen]byte // the packet that is received; after its header 0

	wr  [1]ib.SendWR // that is being posted
	sge [1]ib.SGE

	requests requests
	hops     []cc.Hop // that are being told

	back []mailbox.Box[uint32] // handles of records that come back from other parts
}

func newPart(a *Adapters, number int) (*part, error) {
	n := a.net.Parts()
	p := &part{a: a, tx: transport.NewTxBatch(rocev2.MaxPacketLen), back: make([]mailbox.Box[uint32], n)}
	p.records.part = uint32(number)
	if a.cfg.Real {
		return p, nil
	}
	p.table = memreg.NewTable(a.random)
	p.pd = p.table.AllocPD()
	var err error
	p.mr, err = p.table.Register(p.pd, memreg.Phantom(ib.MaxMessage), memreg.Options{Access: allAccess, Base: memreg.BaseIOVA, IOVA: phantomAddr})
	return p, err
}

// take returns a record that is free.
func (p *part) take() (uint32, *record) {
	if p.records.free == 0 {
		p.reclaim()
	}
	return p.records.take()
}

// reclaim makes records free that have come back.
func (p *part) reclaim() {
	for i := range p.back {
		for handle := p.back[i].Take(); handle != nil; handle = p.back[i].Take() {
			p.records.put(*handle)
		}
	}
}

// release gives a record back, that may be of another part.
func (p *part) release(handle uint32) {
	p.records.used--
	of := handle >> handleBits
	if of == p.records.part {
		p.records.put(handle)
		return
	}
	box := &p.a.parts[of].back[p.records.part]
	*box.Put() = handle
	box.Post()
}
