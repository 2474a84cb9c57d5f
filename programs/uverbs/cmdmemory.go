//go:build linux

package uverbs

import (
	"errors"
	"os"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
)

// domain is a protection domain.
type domain struct {
	core  *hca.PD
	users int // objects that are of it
}

// protection is the protection domains of a client, with the memory regions and
// memory windows in them.
type protection struct {
	ctx     *hca.Context
	domains table[domain]
	regions table[region]
	windows table[window]
}

// allocPD makes a protection domain (IBTA 11.2.1.6).
func (p *protection) allocPD(r *abi.Request, _ *abi.AllocPDReq) abi.Reply {
	h, err := p.domains.add(func(uint32) (*domain, error) {
		pd, err := p.ctx.AllocPD()
		return &domain{core: pd}, err
	})
	if err != nil {
		return abi.Fail(errnoOf(err))
	}
	return r.Answer(abi.AllocPDResp{PdHandle: h}, nil)
}

// deallocPD frees one (IBTA 11.2.1.8).
func (p *protection) deallocPD(r *abi.Request, req *abi.DeallocPDReq) abi.Reply {
	pd := p.domains.get(req.PdHandle)
	switch {
	case pd == nil:
		return abi.Fail(abi.ENOENT)
	case pd.users > 0:
		return abi.Fail(abi.EBUSY)
	}
	if err := pd.core.Close(); err != nil {
		return abi.Fail(errnoOf(err))
	}
	p.domains.release(req.PdHandle)
	return abi.Reply{}
}

// region is a memory region.
type region struct {
	core *hca.MR
	pd   *domain

	start, length uint64 // of its memory
}

// hugePages says that on-demand memory is of huge pages (IBV_ACCESS_HUGETLB):
// hardware may use bigger entries in its tables.
const hugePages ib.Access = 1 << 7

// accessOf checks rights as the kernel does: what writes needs local write.
func accessOf(flags uint32) (ib.Access, abi.Errno) {
	a := ib.Access(flags)
	if a&ib.OnDemand != 0 {
		a &^= hugePages
	}
	switch {
	case a&^ib.AccessMask != 0, a&ib.FlushPersistent != 0:
		return 0, abi.EOPNOTSUPP
	case a&(ib.RemoteWrite|ib.RemoteAtomic) != 0 && a&ib.LocalWrite == 0:
		return 0, abi.EINVAL
	}
	return a, 0
}

// writes reports whether memory with such rights is written. A window may write
// to a region whose rights do not say so, but that needs local write, too.
func writes(a ib.Access) bool { return a&ib.LocalWrite != 0 }

// checkRange checks where a region lies as the kernel does.
func checkRange(start, length, iova uint64, a ib.Access) abi.Errno {
	page := uint64(os.Getpagesize())
	if length == 0 || start+length < start || iova+length < iova || a&ib.ZeroBased == 0 && start%page != iova%page {
		return abi.EINVAL
	}
	return 0
}

// place sets the address of a region.
func place(o *memreg.Options, iova uint64) {
	o.Base, o.IOVA = memreg.BaseIOVA, iova
	if o.Access&ib.ZeroBased != 0 {
		o.Base, o.IOVA = memreg.BaseZero, 0
	}
}

// regMR registers memory (IBTA 11.2.8.2).
func (p *protection) regMR(r *abi.Request, req *abi.RegMRReq) abi.Reply {
	pd := p.domains.get(req.PdHandle)
	if pd == nil {
		return abi.Fail(abi.EINVAL)
	}
	a, errno := accessOf(req.AccessFlags)
	if errno != 0 {
		return abi.Fail(errno)
	}
	if errno := checkRange(req.Start, req.Length, req.HcaVa, a); errno != 0 {
		return abi.Fail(errno)
	}
	m, err := memoryAt(req.Start, req.Length, writes(a))
	if err != nil {
		return abi.Fail(errnoOf(err))
	}
	o := memreg.Options{Access: a}
	place(&o, req.HcaVa)
	mr := &region{pd: pd, start: req.Start, length: req.Length}
	h, err := p.regions.add(func(uint32) (_ *region, err error) {
		mr.core, err = pd.core.Register(m, o, func() error { return nil })
		return mr, err
	})
	if err != nil {
		return abi.Fail(errnoOf(err))
	}
	pd.users++
	core := mr.core.Region()
	return r.Answer(abi.RegMRResp{MrHandle: h, Lkey: uint32(core.LKey()), Rkey: uint32(core.RKey())}, nil)
}

// reregMR changes a region (IBTA 11.2.8.5).
func (p *protection) reregMR(r *abi.Request, req *abi.ReregMRReq) abi.Reply {
	mr := p.regions.get(req.MrHandle)
	if mr == nil {
		return abi.Fail(abi.ENOENT)
	}
	if req.Flags == 0 || req.Flags&^(abi.ReregTranslation|abi.ReregPD|abi.ReregAccess) != 0 {
		return abi.Fail(abi.EINVAL)
	}
	to := mr.pd
	if req.Flags&abi.ReregPD != 0 {
		if to = p.domains.get(req.PdHandle); to == nil {
			return abi.Fail(abi.EINVAL)
		}
	}
	if errno := mr.change(req, to); errno != 0 {
		return abi.Fail(errno)
	}
	mr.pd.users--
	to.users++
	mr.pd = to
	core := mr.core.Region()
	return r.Answer(abi.ReregMRResp{Lkey: uint32(core.LKey()), Rkey: uint32(core.RKey())}, nil)
}

// change changes what a command says, and brings the region into a domain.
func (mr *region) change(req *abi.ReregMRReq, to *domain) (errno abi.Errno) {
	old := mr.core.Region().Options()
	rights := old.Access
	if req.Flags&abi.ReregAccess != 0 {
		if rights, errno = accessOf(req.AccessFlags); errno != 0 {
			return errno
		}
	}
	start, length := mr.start, mr.length
	if req.Flags&abi.ReregTranslation != 0 {
		if errno := checkRange(req.Start, req.Length, req.HcaVa, rights); errno != 0 {
			return errno
		}
		start, length = req.Start, req.Length
	}
	// The kernel's driver keeps the keys, and programs rely on that.
	what := hca.Reregistration{PD: to.core, KeepKeys: true, Options: func(o *memreg.Options) {
		o.Access = rights
		if req.Flags&abi.ReregTranslation != 0 {
			place(o, req.HcaVa)
		}
	}}
	if req.Flags&abi.ReregTranslation != 0 || writes(rights) && !writes(old.Access) { // it was taken for reading
		m, err := memoryAt(start, length, writes(rights))
		if err != nil {
			return errnoOf(err)
		}
		what.Memory = m
	}
	if err := mr.core.Reregister(what); err != nil {
		return errnoOf(err)
	}
	mr.start, mr.length = start, length
	return 0
}

// deregMR deregisters a region (IBTA 11.2.8.4).
func (p *protection) deregMR(r *abi.Request, req *abi.DeregMRReq) abi.Reply {
	mr := p.regions.get(req.MrHandle)
	if mr == nil {
		return abi.Fail(abi.ENOENT)
	}
	if err := mr.core.Close(); errors.Is(err, memreg.ErrRegionInUse) {
		return abi.Fail(abi.EBUSY)
	}
	mr.pd.users--
	p.regions.release(req.MrHandle)
	return abi.Reply{}
}

// window is a memory window.
type window struct {
	core *hca.MW
	pd   *domain
}

// allocMW makes a memory window (IBTA 11.2.8.9).
func (p *protection) allocMW(r *abi.Request, req *abi.AllocMWReq) abi.Reply {
	pd := p.domains.get(req.PdHandle)
	if pd == nil {
		return abi.Fail(abi.EINVAL)
	}
	mw := &window{pd: pd}
	h, err := p.windows.add(func(uint32) (_ *window, err error) {
		mw.core, err = pd.core.AllocMW(ib.MWType(req.MwType))
		return mw, err
	})
	if err != nil {
		return abi.Fail(errnoOf(err))
	}
	pd.users++
	return r.Answer(abi.AllocMWResp{MwHandle: h, Rkey: uint32(mw.core.Core().RKey())}, nil)
}

// deallocMW frees one (IBTA 11.2.8.12).
func (p *protection) deallocMW(r *abi.Request, req *abi.DeallocMWReq) abi.Reply {
	mw := p.windows.get(req.MwHandle)
	if mw == nil {
		return abi.Fail(abi.ENOENT)
	}
	if err := mw.core.Close(); err != nil {
		return abi.Fail(errnoOf(err))
	}
	mw.pd.users--
	p.windows.release(req.MwHandle)
	return abi.Reply{}
}
