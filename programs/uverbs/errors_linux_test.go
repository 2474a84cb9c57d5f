package uverbs

import (
	"math"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
	fake "github.com/gosoftroce/rocev2/programs/uverbs/uverbstest"
)

// What the kernel refuses is refused with its error numbers. A handle of
// nothing is ENOENT to what ends or changes the object, and EINVAL, up to Linux
// 6.13, to what uses it.
func TestErrorNumbers(t *testing.T) {
	t.Parallel()
	d, _ := hosts(t)
	a := start(t, d)
	const no = 77
	for _, c := range []struct {
		name string
		want abi.Errno
		cmd  abi.Command
		body any
	}{
		{"no such domain", abi.ENOENT, abi.DeallocPD, abi.DeallocPDReq{PdHandle: no}},
		{"a domain with a region", abi.EBUSY, abi.DeallocPD, abi.DeallocPDReq{PdHandle: a.pd}},
		{"no such region", abi.ENOENT, abi.DeregMR, abi.DeregMRReq{MrHandle: no}},
		{"no such region", abi.ENOENT, abi.ReregMR, abi.ReregMRReq{MrHandle: no, Flags: 1}},
		{"nothing to change", abi.EINVAL, abi.ReregMR, abi.ReregMRReq{MrHandle: a.mr.MrHandle}},
		{"change what", abi.EINVAL, abi.ReregMR, abi.ReregMRReq{MrHandle: a.mr.MrHandle, Flags: 8}},
		{"no such domain", abi.EINVAL, abi.ReregMR, abi.ReregMRReq{MrHandle: a.mr.MrHandle, Flags: abi.ReregPD, PdHandle: no}},
		{"no such domain", abi.EINVAL, abi.RegMR, abi.RegMRReq{Start: a.addr(0), HcaVa: a.addr(0), Length: 8, PdHandle: no}},
		{"no such domain", abi.EINVAL, abi.AllocMW, abi.AllocMWReq{PdHandle: no, MwType: 1}},
		{"no such type", abi.EINVAL, abi.AllocMW, abi.AllocMWReq{MwType: 3}},
		{"no such handle", abi.ENOENT, abi.DestroyAH, abi.DestroyAHReq{AhHandle: no}},
		{"no such window", abi.ENOENT, abi.DeallocMW, abi.DeallocMWReq{MwHandle: no}},
		{"no such domain", abi.EINVAL, abi.CreateAH, abi.CreateAHReq{PdHandle: no, Attr: *attrOfDest(ptr(a.dest()))}},
		{"no such queue", abi.EINVAL, abi.ResizeCQ, abi.ResizeCQReq{CqHandle: no, Cqe: 8}},
		{"no such queue", abi.ENOENT, abi.DestroyCQ, abi.DestroyCQReq{CqHandle: no}},
		{"no such queue", abi.EINVAL, abi.ReqNotifyCQ, abi.ReqNotifyCQReq{CqHandle: no}},
		{"no entries", abi.EINVAL, abi.CreateCQ, abi.CreateCQReq{CQInit: abi.CQInit{CompChannel: -1}}},
		{"too many entries", abi.EINVAL, abi.CreateCQ, abi.CreateCQReq{CQInit: abi.CQInit{CompChannel: -1, Cqe: math.MaxUint32}}},
		{"no such vector", abi.EINVAL, abi.CreateCQ, abi.CreateCQReq{CQInit: abi.CQInit{CompChannel: -1, Cqe: 8, CompVector: no}}},
		{"no such channel", abi.EBADF, abi.CreateCQ, abi.CreateCQReq{CQInit: abi.CQInit{CompChannel: no, Cqe: 8}}},
		{"no such domain", abi.EINVAL, abi.CreateSRQ, abi.CreateSRQReq{SRQInit: abi.SRQInit{PdHandle: no, MaxWr: 8, MaxSge: 1}}},
		{"too long", abi.EINVAL, abi.CreateSRQ, abi.CreateSRQReq{SRQInit: abi.SRQInit{MaxWr: math.MaxUint32, MaxSge: 1}}},
		{"too many entries", abi.EINVAL, abi.CreateSRQ, abi.CreateSRQReq{SRQInit: abi.SRQInit{MaxWr: 8, MaxSge: 1000}}},
		{"a limit beyond it", abi.EINVAL, abi.CreateSRQ, abi.CreateSRQReq{SRQInit: abi.SRQInit{MaxWr: 8, MaxSge: 1, SrqLimit: 9}}},
		{"of XRC", abi.EOPNOTSUPP, abi.CreateXSRQ, abi.CreateXSRQReq{SrqType: abi.SRQXRC, SRQInit: abi.SRQInit{MaxWr: 8, MaxSge: 1}}},
		{"no such queue", abi.EINVAL, abi.ModifySRQ, abi.ModifySRQReq{SrqHandle: no}},
		{"no such queue", abi.EINVAL, abi.QuerySRQ, abi.QuerySRQReq{SrqHandle: no}},
		{"no such queue", abi.ENOENT, abi.DestroySRQ, abi.DestroySRQReq{SrqHandle: no}},
		{"no such queue pair", abi.EINVAL, abi.QueryQP, abi.QueryQPReq{QpHandle: no}},
		{"no such queue pair", abi.EINVAL, abi.ModifyQP, abi.ModifyQPReq{QpHandle: no}},
		{"no such attribute", abi.EOPNOTSUPP, abi.ModifyQP, abi.ModifyQPReq{AttrMask: 1 << 21}},
		{"no such queue pair", abi.ENOENT, abi.DestroyQP, abi.DestroyQPReq{QpHandle: no}},
		{"no such queue pair", abi.EINVAL, abi.PostSend, abi.PostSendReq{QpHandle: no}},
		{"no such queue pair", abi.EINVAL, abi.AttachMcast, abi.McastReq{QpHandle: no}},
		{"no such queue pair", abi.EINVAL, abi.DetachMcast, abi.McastReq{QpHandle: no}},
		{"no XRC", abi.EOPNOTSUPP, 37, abi.PostSendReq{}},
		{"no such command", abi.EOPNOTSUPP, 29, abi.PostSendReq{}},
		{"no such command", abi.EINVAL, 99, abi.PostSendReq{}},
	} {
		r := a.c.Command(fake.Plain(c.cmd, 1024, c.body))
		if r.Errno != c.want || r.Resp != nil || r.Files != nil {
			t.Errorf("%s: %v %+v: errno %d, want %d", c.name, c.cmd, c.body, r.Errno, c.want)
		}
	}
	if r := a.c.Command(fake.Plain(abi.AllocPD, 0, abi.AllocPDReq{})); r.Errno != abi.ENOSPC {
		t.Errorf("no room for the reply: errno %d, want ENOSPC", r.Errno)
	}
	if r := a.c.Command(fake.Plain(abi.RegMR, 12, abi.AllocPDReq{})); r.Errno != abi.ENOSPC {
		t.Errorf("a short command: errno %d, want ENOSPC", r.Errno)
	}
	if r := a.c.Command(nil); r.Errno != abi.EINVAL {
		t.Errorf("no command: errno %d, want EINVAL", r.Errno)
	}
	if r := a.c.Command(fake.Extended(abi.CreateCQ, 16, 16, abi.ExCreateCQReq{Flags: abi.CQTimestampCompletion, CQInit: abi.CQInit{Cqe: 8, CompChannel: -1}})); r.Errno != abi.EOPNOTSUPP {
		t.Errorf("a queue with timestamps: errno %d, want EOPNOTSUPP", r.Errno)
	}
	if n := a.c.area.used; n != 0 {
		t.Errorf("%d bytes of rings are left", n)
	}
}

// Memory is checked where it is, for what it may do.
func TestRegions(t *testing.T) {
	t.Parallel()
	d, _ := hosts(t)
	a := start(t, d)
	at := a.addr(0)
	reg := func(start, n, iova uint64, rights ib.Access) abi.Reply {
		return a.c.Command(fake.Plain(abi.RegMR, 12, abi.RegMRReq{Start: start, Length: n, HcaVa: iova, PdHandle: a.pd, AccessFlags: uint32(rights)}))
	}
	for name, c := range map[string]struct {
		start, n, iova uint64
		rights         ib.Access
		want           abi.Errno
	}{
		"of the program":        {at, 4096, at, ib.LocalWrite, 0},
		"at another address":    {at, 4096, 1 << 40, ib.LocalWrite, 0},
		"from 0 on":             {at + 8, 4096, at, ib.LocalWrite | ib.ZeroBased, 0},
		"with hints":            {at, 4096, at, ib.RelaxedOrdering, 0},
		"of nobody":             {0, 4096, 0, 0, abi.EFAULT},
		"empty":                 {at, 0, at, 0, abi.EINVAL},
		"around the end":        {at, math.MaxUint64, at, 0, abi.EINVAL},
		"addresses around it":   {at, 4096, math.MaxUint64 &^ 4095, 0, abi.EINVAL},
		"another page offset":   {at + 1, 4096, at, 0, abi.EINVAL},
		"unknown rights":        {at, 4096, at, 1 << 12, abi.EOPNOTSUPP},
		"on demand":             {at, 4096, at, ib.OnDemand, 0},
		"on demand, huge pages": {at, 4096, at, ib.OnDemand | hugePages, 0},
		"huge pages":            {at, 4096, at, hugePages, abi.EOPNOTSUPP},
		"of a disk":             {at, 4096, at, ib.FlushPersistent, abi.EOPNOTSUPP},
		"remote write, only":    {at, 4096, at, ib.RemoteWrite, abi.EINVAL},
		"remote atomics, only":  {at, 4096, at, ib.RemoteAtomic, abi.EINVAL},
	} {
		if r := reg(c.start, c.n, c.iova, c.rights); r.Errno != c.want {
			t.Errorf("%s: errno %d, want %d", name, r.Errno, c.want)
		}
	}
}

// A region gets other rights, another domain and other memory. What it could
// only be read for is taken anew to be written.
func TestReregister(t *testing.T) {
	t.Parallel()
	d, _ := hosts(t)
	a := start(t, d)
	mr := a.register(0)
	other := ask[abi.AllocPDResp](a, abi.AllocPD, abi.AllocPDReq{}).PdHandle
	rereg := func(req abi.ReregMRReq) {
		t.Helper()
		req.MrHandle = mr.MrHandle
		got := ask[abi.ReregMRResp](a, abi.ReregMR, req)
		if core := a.c.protection.regions.get(mr.MrHandle).core.Region(); uint32(core.LKey()) != got.Lkey || got.Lkey != mr.Lkey || got.Rkey != mr.Rkey || !core.Alive() {
			t.Errorf("%+v: keys %+v, the region has %v and had %+v", req, got, core.LKey(), mr)
		}
	}
	rereg(abi.ReregMRReq{Flags: abi.ReregAccess, AccessFlags: uint32(ib.LocalWrite | ib.RemoteWrite)})
	rereg(abi.ReregMRReq{Flags: abi.ReregPD, PdHandle: other})
	rereg(abi.ReregMRReq{Flags: abi.ReregTranslation, Start: a.addr(4096), Length: 8192, HcaVa: 1 << 30})
	core := a.c.protection.regions.get(mr.MrHandle).core.Region()
	if core.Addr() != 1<<30 || core.Len() != 8192 || core.Access()&ib.RemoteWrite == 0 || core.PD() != a.c.protection.domains.get(other).core.Core() {
		t.Errorf("region at %#x of %d bytes, %v", core.Addr(), core.Len(), core.Access())
	}
	refused(a, abi.EBUSY, abi.DeallocPD, abi.DeallocPDReq{PdHandle: other})
	tell(a, abi.DeregMR, abi.DeregMRReq{MrHandle: mr.MrHandle})
	tell(a, abi.DeallocPD, abi.DeallocPDReq{PdHandle: other})
	refused(a, abi.ENOENT, abi.DeregMR, abi.DeregMRReq{MrHandle: mr.MrHandle})
}

// The memory of rings is bounded. What a client gives back it may have again.
func TestRingsAreBounded(t *testing.T) {
	t.Parallel()
	d, _ := hosts(t)
	a := open(t, d, 1<<20)
	a.getContext()
	a.pd = ask[abi.AllocPDResp](a, abi.AllocPD, abi.AllocPDReq{}).PdHandle
	cq, most := a.newCQ(63), uint32(a.c.queries.most.cqe)
	refused(a, abi.ENOMEM, abi.CreateCQ, abi.CreateCQReq{CQInit: abi.CQInit{CompChannel: -1, Cqe: most + 1}})
	refused(a, abi.ENOMEM, abi.ResizeCQ, abi.ResizeCQReq{CqHandle: cq.handle, Cqe: most + 1})

	for _, req := range []abi.QPInit{ // as libfabric tries
		{MaxSendWr: uint32(longest.wr), MaxRecvWr: 1, MaxSendSge: 32, MaxRecvSge: 1},
		{MaxSendWr: 1, MaxRecvWr: uint32(longest.wr), MaxSendSge: 1, MaxRecvSge: 32},
	} {
		req.PdHandle, req.SendCqHandle, req.RecvCqHandle, req.QpType = a.pd, cq.handle, cq.handle, uint8(ib.RC)
		refused(a, abi.ENOMEM, abi.CreateQP, abi.CreateQPReq{QPInit: req})
		req.MaxSendWr = uint32(longest.wr) + 1
		refused(a, abi.EINVAL, abi.CreateQP, abi.CreateQPReq{QPInit: req})
		req.QpType, req.MaxSendWr = 8, 1
		refused(a, abi.EOPNOTSUPP, abi.CreateQP, abi.CreateQPReq{QPInit: req})
	}
	before := a.c.area.used
	qp := a.newQP(options{cq: cq})
	ask[abi.DestroyQPResp](a, abi.DestroyQP, abi.DestroyQPReq{QpHandle: qp.QpHandle})
	if a.c.area.used != before {
		t.Errorf("%d bytes of rings are in use, before the queue pair there were %d", a.c.area.used, before)
	}
}

// The memory of a ring that goes is given back to the system at once.
func TestRingMemory(t *testing.T) {
	t.Parallel()
	d, _ := hosts(t)
	a := start(t, d)
	blocks := func() int64 {
		var st unix.Stat_t
		a.must(unix.Fstat(a.c.Memory(), &st))
		return st.Blocks
	}
	empty := blocks()
	for range 3 {
		s1, s2, s3 := a.newSRQ(1023, 0), a.newSRQ(511, 0), a.newSRQ(255, 0)
		for _, s := range []*appSRQ{s1, s2, s3} {
			clear(s.Mem[4096:])
		}
		if blocks() == empty {
			t.Fatal("the rings take no memory")
		}
		for _, s := range []*appSRQ{s2, s1, s3} {
			ask[abi.DestroySRQResp](a, abi.DestroySRQ, abi.DestroySRQReq{SrqHandle: s.SrqHandle})
		}
		if n := blocks(); n != empty {
			t.Errorf("%d blocks of memory are left, before there were %d", n, empty)
		}
		if len(a.c.area.free) != 1 || a.c.area.used != 0 {
			t.Errorf("free: %v, %d bytes are in use", a.c.area.free, a.c.area.used)
		}
	}
	if err := unix.Ftruncate(a.c.Memory(), 0); err == nil {
		t.Error("the program can make the memory shorter, so that who touches it is killed")
	}
}
