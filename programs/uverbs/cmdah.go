//go:build linux

package uverbs

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
)

// handle is an address handle. Its number in send requests is one more than
// that in commands, for there 0 is none.
type handle struct {
	core hca.AH
	pd   *domain
}

// addressHandles is the address handles of a client.
type addressHandles struct {
	dev     *Device
	domains *table[domain]
	handles table[handle]
}

// vectorOf returns an address vector. A RoCE port has one GID, and needs the
// global route.
func vectorOf(a *abi.AHAttr) (ib.AddressVector, abi.Errno) {
	if a.IsGlobal == 0 || a.PortNum != portNumber || a.Grh.SgidIndex != 0 {
		return ib.AddressVector{}, abi.EINVAL
	}
	av := ib.AddressVector{
		DGID:         netip.AddrFrom16(a.Grh.Dgid).Unmap(),
		TrafficClass: a.Grh.TrafficClass,
		HopLimit:     a.Grh.HopLimit,
		FlowLabel:    a.Grh.FlowLabel & (1<<20 - 1),
		SL:           a.Sl & 15,
		StaticRate:   a.StaticRate,
	}
	if av.FlowLabel != 0 {
		av.SrcPort = hca.AutoSourcePort
	}
	return av, 0
}

// createAH makes an address handle (IBTA 11.2.2.1).
func (a *addressHandles) createAH(r *abi.Request, req *abi.CreateAHReq) abi.Reply {
	pd := a.domains.get(req.PdHandle)
	if pd == nil {
		return abi.Fail(abi.EINVAL)
	}
	if own := a.dev.OwnHandle; own != nil && req.Attr.IsGlobal == 0 && own() {
		req.Attr.IsGlobal, req.Attr.Grh.Dgid = 1, a.dev.Dev.Addr().As16()
	}
	av, errno := vectorOf(&req.Attr)
	if errno != 0 {
		return abi.Fail(errno)
	}
	h, err := a.handles.add(func(uint32) (*handle, error) {
		ah := &handle{pd: pd}
		return ah, pd.core.MakeAH(&ah.core, av)
	})
	if err != nil {
		return abi.Fail(errnoOf(err))
	}
	pd.users++
	return r.Answer(abi.CreateAHResp{AhHandle: h}, abi.CreateAHDriverResp{AhNum: h + 1})
}

// numbered returns the handle with a number in send requests.
func (a *addressHandles) numbered(number uint32) *ib.AddressHandle {
	if ah := a.handles.get(number - 1); ah != nil {
		return ah.core.Core()
	}
	return nil
}

// destroyAH destroys an address handle (IBTA 11.2.2.4).
func (a *addressHandles) destroyAH(r *abi.Request, req *abi.DestroyAHReq) abi.Reply {
	ah := a.handles.get(req.AhHandle)
	if ah == nil {
		return abi.Fail(abi.ENOENT)
	}
	a.handles.release(req.AhHandle)
	ah.core.Close()
	ah.pd.users--
	return abi.Reply{}
}
