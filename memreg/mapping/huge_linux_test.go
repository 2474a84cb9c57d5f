package mapping

import (
	"os"
	"runtime"
	"strconv"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

// tebibyte does not fit into an int of 32 bits.
var tebibyte = func() int { n := 1 << 20; return n * n }()

// pagesIn returns how many pages of a part of a mapping are in memory, by
// mincore(2).
func pagesIn(t *testing.T, b []byte) (n int) {
	t.Helper()
	vec := make([]byte, (len(b)+page-1)/page)
	_, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&vec[0])))
	if e != 0 {
		t.Fatalf("mincore: %v", e)
	}
	for _, v := range vec {
		n += int(v & 1)
	}
	return n
}

// A region over a tebibyte costs nothing until it is touched, and then what is
// touched: of a sparse file, and of addresses without a file.
func TestTebibyte(t *testing.T) {
	if strconv.IntSize < 64 {
		t.Skip("there are no such addresses in a process of 32 bits: run it in one of 64")
	}
	f := file(t, 0, os.O_RDWR)
	if err := f.Truncate(int64(tebibyte)); err != nil {
		t.Skipf("the file system of %s has no files of 1 TiB (set TMPDIR to another, such as ext4 or xfs): %v", f.Name(), err)
	}
	for name, open := range map[string]func() (*Mapping, error){
		"file":      func() (*Mapping, error) { return File(f, 0, tebibyte, Options{Guard: true}) },
		"anonymous": func() (*Mapping, error) { return Anonymous(tebibyte, Options{Reserve: true}) },
	} {
		t.Run(name, func(t *testing.T) { testTebibyte(t, open) })
	}
}

func testTebibyte(t *testing.T, open func() (*Mapping, error)) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tab := memreg.NewTable(func() func() uint32 { k := uint32(7); return func() uint32 { k += 0x10001; return k } }())
	pd := tab.AllocPD()
	r, err := tab.Register(pd, m, memreg.Options{Access: ib.LocalWrite | ib.RemoteWrite | ib.OnDemand, Base: memreg.BaseIOVA})
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.TotalAlloc - before.TotalAlloc); grown > 2<<20 {
		t.Errorf("the registration takes %d bytes", grown)
	}
	const probe = 64 << 20
	for _, off := range []int{0, tebibyte / 2, tebibyte - probe} {
		if n := pagesIn(t, m.Data()[off:off+probe]); n != 0 {
			t.Errorf("%d pages at %#x are in memory before they are touched", n, off)
		}
	}
	for _, off := range []uint64{0, uint64(tebibyte)/2 + 8, uint64(tebibyte) - 8} {
		v, f := tab.Resolve(pd, 1, r.RKey(), off, 8, ib.RemoteWrite)
		if f != ib.FaultNone {
			t.Fatal(f)
		}
		if f = v.CopyIn(0, []byte("touched!")); f == ib.FaultNotPresent {
			v.Missing(0, 8, true).Fetch()
			f = v.CopyIn(0, []byte("touched!"))
		}
		v.Release()
		if f != ib.FaultNone || string(m.Data()[off:off+8]) != "touched!" {
			t.Errorf("write at %#x: %v", off, f)
		}
	}
	// The system brings some that lie beside it.
	if n := pagesIn(t, m.Data()[tebibyte/2:tebibyte/2+probe]); n == 0 || n > probe/page/4 {
		t.Errorf("%d pages are in memory after one was touched", n)
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.TotalAlloc - before.TotalAlloc); grown > 4<<20 {
		t.Errorf("three pages take %d bytes", grown)
	}
	if err := tab.Deregister(r); err != nil {
		t.Error(err)
	}
}
