package uverbs

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
	"github.com/gosoftroce/rocev2/programs/uverbs/ring"
)

// These are tests of the parts of a client, each without the others.

// contextOf returns a context of a device, which ends with the test.
func contextOf(t *testing.T, d *Device) *hca.Context {
	t.Helper()
	ctx, err := d.Dev.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ctx.Close() })
	return ctx
}

// areaOf returns memory for rings.
func areaOf(t *testing.T) *area {
	t.Helper()
	a, err := newArea(smallRings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.close() })
	return a
}

// errnos checks what commands were answered.
func errnos(t *testing.T, got []abi.Reply, want ...abi.Errno) {
	t.Helper()
	for i := range want {
		if got[i].Errno != want[i] {
			t.Errorf("command %d of the list: errno %d, want %d", i, got[i].Errno, want[i])
		}
	}
}

// A protection domain counts the regions and windows in it.
func TestProtection(t *testing.T) {
	t.Parallel()
	d, _ := near(t)
	p := &protection{ctx: contextOf(t, d), domains: table[domain]{most: 1}, regions: table[region]{most: 1}, windows: table[window]{most: 1}}
	b := make([]byte, os.Getpagesize())
	reg := &abi.RegMRReq{Start: uint64(uintptr(unsafe.Pointer(&b[0]))), Length: uint64(len(b)), AccessFlags: uint32(ib.LocalWrite)}
	reg.HcaVa = reg.Start
	r := new(abi.Request)
	errnos(t, []abi.Reply{
		p.regMR(r, reg),
		p.allocPD(r, nil),
		p.allocPD(r, nil),
		p.regMR(r, reg),
		p.allocMW(r, &abi.AllocMWReq{MwType: uint8(ib.MWType1)}),
		p.regMR(r, reg),
		p.deallocPD(r, &abi.DeallocPDReq{}),
		p.deregMR(r, &abi.DeregMRReq{}),
		p.deallocPD(r, &abi.DeallocPDReq{}),
		p.deallocMW(r, &abi.DeallocMWReq{}),
		p.deallocPD(r, &abi.DeallocPDReq{}),
		p.deallocPD(r, &abi.DeallocPDReq{}),
	}, abi.EINVAL, 0, abi.ENOMEM, 0, 0, abi.ENOMEM, abi.EBUSY, 0, abi.EBUSY, 0, 0, abi.ENOENT)
}

// The number of an address handle in send requests is one more than that in
// commands.
func TestHandlesHaveNumbers(t *testing.T) {
	t.Parallel()
	d, _ := near(t)
	p := &protection{ctx: contextOf(t, d), domains: table[domain]{most: 1}}
	a := &addressHandles{dev: d, domains: &p.domains, handles: table[handle]{most: 2}}
	req := &abi.CreateAHReq{Attr: abi.AHAttr{IsGlobal: 1, PortNum: portNumber}}
	req.Attr.Grh.Dgid = d.Dev.Addr().As16()
	r := new(abi.Request)
	errnos(t, []abi.Reply{
		a.createAH(r, req),
		p.allocPD(r, nil),
		a.createAH(r, req),
		p.deallocPD(r, &abi.DeallocPDReq{}),
	}, abi.EINVAL, 0, 0, abi.EBUSY)
	if a.numbered(0) != nil || a.numbered(1) == nil || a.numbered(2) != nil {
		t.Errorf("the handles of the numbers 0 to 2 are %v, %v, %v", a.numbered(0), a.numbered(1), a.numbered(2))
	}
	errnos(t, []abi.Reply{
		a.destroyAH(r, &abi.DestroyAHReq{}),
		a.destroyAH(r, &abi.DestroyAHReq{}),
		p.deallocPD(r, &abi.DeallocPDReq{}),
	}, 0, abi.ENOENT, 0)
}

// A channel that the program has closed is freed when the last completion queue
// with it has gone, and another one is made.
func TestChannelsOfEvents(t *testing.T) {
	t.Parallel()
	d, _ := near(t)
	e := &events{dev: d.Dev, channels: table[pipe]{most: 2}}
	e.deferred.init(d.Dev)
	q := &compQueues{dev: d, area: areaOf(t), events: e, most: 15, cqs: table[ownedCQ]{most: 2}}
	r := new(abi.Request)
	out := e.getContext(r, nil)
	if again := e.getContext(r, nil); out.Errno != 0 || again.Errno != abi.EINVAL {
		t.Fatalf("errno %d, and the second time %d", out.Errno, again.Errno)
	}
	defer unix.Close(out.Files[0].FD)
	made := e.createCompChannel(r, nil)
	fd := made.Files[0].FD
	ino, _ := inode(fd)
	errnos(t, []abi.Reply{made,
		q.createCQ(r, &abi.CreateCQReq{CQInit: abi.CQInit{Cqe: 16, CompChannel: int32(fd)}}),
		q.createCQ(r, &abi.CreateCQReq{CQInit: abi.CQInit{Cqe: 15, CompChannel: int32(fd)}}),
		q.createCQ(r, &abi.CreateCQReq{CQInit: abi.CQInit{Cqe: 15, CompChannel: int32(out.Files[0].FD)}}),
	}, 0, abi.ENOMEM, 0, abi.EBADF)
	unix.Close(fd)
	e.closed(ino)
	for range 2 { // the place of the closed one is taken
		out := e.createCompChannel(r, nil)
		if out.Errno == 0 {
			defer unix.Close(out.Files[0].FD)
		} else if out.Errno != abi.EMFILE {
			t.Errorf("errno %d", out.Errno)
		}
	}
	if n := len(e.channels.all()); n != 2 {
		t.Errorf("%d channels while a queue has the closed one, want 2", n)
	}
	errnos(t, []abi.Reply{q.destroyCQ(r, &abi.DestroyCQReq{}), q.destroyCQ(r, &abi.DestroyCQReq{})}, 0, abi.ENOENT)
	last := e.createCompChannel(r, nil)
	if last.Errno != 0 {
		t.Fatalf("errno %d: the closed channel still has its place", last.Errno)
	}
	unix.Close(last.Files[0].FD)
	e.deferred.end()
	for _, p := range e.pipes() {
		p.close()
	}
}

// A shared receive queue goes only when no queue pair takes from it, and its
// domain not before it.
func TestSharedQueues(t *testing.T) {
	t.Parallel()
	d, _ := near(t)
	p := &protection{ctx: contextOf(t, d), domains: table[domain]{most: 1}}
	e := &events{dev: d.Dev}
	e.deferred.init(d.Dev)
	out := e.getContext(new(abi.Request), nil)
	defer unix.Close(out.Files[0].FD)
	s := &sharedQueues{dev: d, area: areaOf(t), events: e, domains: &p.domains, srqs: table[ownedSRQ]{most: 1}}
	r := new(abi.Request)
	create := &abi.CreateSRQReq{SRQInit: abi.SRQInit{MaxWr: 7, MaxSge: 1}}
	errnos(t, []abi.Reply{
		s.createSRQ(r, create),
		p.allocPD(r, nil),
		s.createSRQ(r, create),
		s.createSRQ(r, create),
		s.modifySRQ(r, &abi.ModifySRQReq{AttrMask: abi.SRQLimit, SrqLimit: 8}),
		s.modifySRQ(r, &abi.ModifySRQReq{AttrMask: abi.SRQMaxWR, MaxWr: 15}),
		s.modifySRQ(r, &abi.ModifySRQReq{AttrMask: abi.SRQLimit, SrqLimit: 8}),
		p.deallocPD(r, &abi.DeallocPDReq{}),
	}, abi.EINVAL, 0, 0, abi.ENOMEM, abi.EINVAL, 0, 0, abi.EBUSY)
	s.srqs.get(0).users++
	errnos(t, []abi.Reply{s.destroySRQ(r, &abi.DestroySRQReq{})}, abi.EBUSY)
	s.srqs.get(0).users--
	errnos(t, []abi.Reply{s.destroySRQ(r, &abi.DestroySRQReq{}), p.deallocPD(r, &abi.DeallocPDReq{})}, 0, 0)
	for _, p := range e.pipes() {
		p.close()
	}
}

// Rings are taken from the area and given back as queues come and go.
func TestAreaGivesRingsBack(t *testing.T) {
	t.Parallel()
	a := areaOf(t)
	shape := ring.ShapeFor(15, ring.CQElem)
	var all []*ringSpace
	for {
		r, err := a.alloc(shape)
		if err != nil {
			break
		}
		all = append(all, r)
	}
	for _, r := range all {
		r.release()
	}
	if len(all) == 0 || a.used != 0 || len(a.free) != 1 {
		t.Errorf("%d rings were made and given back: %d bytes are in use, in %d gaps", len(all), a.used, len(a.free))
	}
}
