package uverbs

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
	fake "github.com/gosoftroce/rocev2/programs/uverbs/uverbstest"
)

// A region needs memory that is mapped, with its rights, as a kernel that pins
// the pages has it.
func TestRegisterMapped(t *testing.T) {
	t.Parallel()
	d, _ := hosts(t)
	a := start(t, d)
	page := os.Getpagesize()
	b, err := unix.Mmap(-1, 0, 4*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	a.must(err)
	defer unix.Munmap(b)
	a.must(unix.Mprotect(b[page:2*page], unix.PROT_READ))
	a.must(unix.Mprotect(b[2*page:3*page], unix.PROT_NONE))
	at := memreg.AddrOf(b)
	byReading := func(addr, end uint64, write bool) error { return checkByReading(Files()[0], addr, end, write) }
	for _, query := range []func(addr, end uint64, write bool) error{checkMapped, byReading} {
		for _, c := range []struct {
			why      string
			from, to int
			write    bool
			ok       bool
		}{
			{"mapped", 0, page, true, true},
			{"read-only, to be read", 0, 2 * page, false, true},
			{"read-only, to be written", 0, 2 * page, true, false},
			{"without rights", 0, 3 * page, false, false},
			{"without rights at the end", page, 2*page + 1, false, false},
			{"mapped again", 3 * page, 4 * page, true, true},
		} {
			if err := query(at+uint64(c.from), at+uint64(c.to), c.write); (err == nil) != c.ok {
				t.Errorf("%s: %v", c.why, err)
			}
		}
	}
	reg := func(addr, n uint64, rights ib.Access) abi.RegMRReq {
		return abi.RegMRReq{Start: addr, Length: n, HcaVa: addr, PdHandle: a.pd, AccessFlags: uint32(rights)}
	}
	refused(a, abi.EFAULT, abi.RegMR, reg(at+uint64(page), uint64(page), ib.LocalWrite))
	refused(a, abi.EFAULT, abi.RegMR, reg(0, 4096, 0))
	refused(a, abi.EFAULT, abi.RegMR, reg(1<<63, 4096, 0))
	ask[abi.RegMRResp](a, abi.RegMR, reg(at+uint64(page), uint64(page), ib.RemoteRead))
}

// A buffer that the program takes away costs a completion with an error, never
// the process: of a SEND, a receive, a READ, and the target of a WRITE.
func TestMemoryGoes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why         string
		of          func(a, b *app) *app
		op          uint32
		mine, peers ib.Status
	}{
		{"what is sent", func(a, _ *app) *app { return a }, fake.Send, ib.StatusLocProtErr, 0},
		{"where it is received", func(_, b *app) *app { return b }, fake.Send, ib.StatusRemOpErr, ib.StatusLocProtErr},
		{"where it is written", func(_, b *app) *app { return b }, fake.Write, ib.StatusRemOpErr, 0},
		{"what is read", func(_, b *app) *app { return b }, fake.Read, ib.StatusRemOpErr, 0},
		{"where it is read to", func(a, _ *app) *app { return a }, fake.Read, ib.StatusLocProtErr, 0},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			da, db := hosts(t)
			a, b := start(t, da), start(t, db)
			ca, cb := a.newCQ(63), b.newCQ(63)
			qa, qb := connected(ib.RC, a, b, ca, cb)
			qb.recv.PostRecv(7, b.sge(0, 64))
			a.must(unix.Mprotect(c.of(a, b).buf, unix.PROT_NONE))
			qa.post(fake.SendWR{ID: 1, Opcode: c.op, Flags: fake.Signaled, SGE: []ib.SGE{a.sge(0, 32)}, Remote: b.addr(4096), RKey: b.mr.Rkey})
			ca.expect(c.mine, 1)
			if c.peers != 0 {
				cb.expect(c.peers, 7)
			}
		})
	}
}

// So does one that goes in the middle of a bulk transfer, where the link
// receives into it.
func TestMemoryGoesInBulk(t *testing.T) {
	t.Parallel()
	da, db := hosts(t)
	a, b := start(t, da), start(t, db)
	ca, cb := a.newCQ(63), b.newCQ(63)
	qa, _ := connected(ib.RC, a, b, ca, cb)
	write := func(id uint64) fake.SendWR {
		return fake.SendWR{ID: id, Opcode: fake.Write, Flags: fake.Signaled, SGE: []ib.SGE{a.sge(0, 1<<16)}, Remote: b.addr(0), RKey: b.mr.Rkey}
	}
	for id := range uint64(200) {
		qa.post(write(id))
		ca.expect(ib.StatusSuccess, id)
	}
	for id := range uint64(4) {
		qa.post(write(id))
	}
	a.must(unix.Mprotect(b.buf, unix.PROT_NONE))
	var status ib.Status
	for _, wc := range ca.wait(4) {
		if status == 0 {
			status = wc.Status
		}
	}
	if status != 0 && status != ib.StatusRemOpErr {
		t.Errorf("%v", status)
	}
}
