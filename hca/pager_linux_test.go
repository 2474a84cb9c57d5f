//go:build amd64 || arm64

package hca

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/memreg/mapping"
)

// The interface of userfaultfd(2), linux/userfaultfd.h.
const (
	uffdAPI        = 0xc018aa3f
	uffdRegister   = 0xc020aa00
	uffdZeroPage   = 0xc020aa04
	uffdMissing    = 1
	uffdAPIVersion = 0xaa
)

// holdPages has the pages of b come when the function that it returns is
// called.
func holdPages(t *testing.T, b []byte) (fd int, release func()) {
	t.Helper()
	r, _, e := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if e != 0 {
		t.Skipf("this user may not hold pages back with userfaultfd(2) (run as root, or set sysctl vm.unprivileged_userfaultfd=1): %v", e)
	}
	fd = int(r)
	t.Cleanup(func() { unix.Close(fd) })
	ioctl := func(request uintptr, arg *[4]uint64) {
		t.Helper()
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, r, request, uintptr(unsafe.Pointer(arg))); e != 0 {
			t.Fatalf("userfaultfd ioctl %#x: %v", request, e)
		}
	}
	start, size := uint64(uintptr(unsafe.Pointer(&b[0]))), uint64(len(b))
	ioctl(uffdAPI, &[4]uint64{uffdAPIVersion})
	ioctl(uffdRegister, &[4]uint64{start, size, uffdMissing})
	return fd, func() { ioctl(uffdZeroPage, &[4]uint64{start, size}) }
}

// A page that the kernel really does not have: while it is fetched another
// queue pair of the shard goes on, and so does garbage collection.
func TestPageThatTheKernelLacks(t *testing.T) {
	t.Parallel()
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead, ib.OpFetchAdd} {
		a, b := newHosts(t, Config{MinProbe: -1})
		a.slow, b.slow = true, true // the peer sees no more than silence
		m, err := mapping.Anonymous(16*os.Getpagesize(), mapping.Options{Guard: true})
		b.must(err)
		far, err := b.pd.Register(m, memreg.Options{Access: pagerAccess, Base: memreg.BaseZero}, m.Close)
		b.must(err)
		near, err := a.pd.Register(memreg.Local([]byte("01234567")), memreg.Options{Access: ib.LocalWrite}, nil)
		a.must(err)
		fd, release := holdPages(t, m.Data())
		qa, qb := a.newQP(), b.newQP()
		a.connect(qa, testAddrB, qb.QPN())
		b.connect(qb, testAddrA, qa.QPN())
		b.must(qb.Modify(&ib.Attr{Access: pagerAccess}, ib.AttrAccess))
		oa, ob := a.newQP(), b.newQP()
		a.connect(oa, testAddrB, ob.QPN())
		b.connect(ob, testAddrA, oa.QPN())
		_, err = qa.PostSend([]ib.SendWR{{ID: 7, Opcode: op, Signaled: true, SGList: []ib.SGE{near.Region().SGE(0, 8)}, CompareAdd: 5,
			Remote: ib.RemoteAddr{Addr: 8, RKey: far.Region().RKey()}}})
		a.must(err)
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
		a.write(oa, b, 100000)
		a.waitOK(1)
		runtime.GC()
		release()
		a.waitOK(1)
		v, fault := far.Region().Load64(8)
		if want := map[ib.Opcode]bool{ib.OpWrite: v != 0, ib.OpRead: v == 0, ib.OpFetchAdd: v == 5}; !want[op] || fault != ib.FaultNone {
			t.Errorf("%v: %#x, %v", op, v, fault)
		}
	}
}
