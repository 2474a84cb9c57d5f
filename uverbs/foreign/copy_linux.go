package foreign

import (
	"unsafe"

	"github.com/gosoftroce/rocev2/ib"
	"golang.org/x/sys/unix"
)

// smallCopy is how many bytes are copied by /proc/PID/mem, which looks at one
// page after the other but needs no question whether the process lives.
const smallCopy = 8 << 10

// maxVector is how many buffers a system call takes at once here; the kernel
// takes 1024.
const maxVector = 64

// byNumber reports whether n bytes are copied by process_vm_readv and so on.
func (s *Space) byNumber(n int) bool { return s.direct && n > smallCopy }

// read copies from addr of the process.
func (s *Space) read(dst []byte, addr uint64) error {
	if len(dst) == 0 {
		return nil
	}
	if s.copier != nil {
		return s.readByCopier(dst, addr)
	}
	if !s.trusted {
		return s.fetch(dst, addr)
	}
	var n int
	var err error
	if s.byNumber(len(dst)) {
		local := [1]unix.Iovec{iovec(dst)}
		remote := [1]unix.RemoteIovec{{Base: uintptr(addr), Len: len(dst)}}
		n, err = unix.ProcessVMReadv(s.pid, local[:], remote[:], 0)
		if err == nil && !s.Alive() {
			n = 0 // it may have been of another process or program
		}
	} else {
		n, err = unix.Pread(s.mem, dst, int64(addr))
	}
	return whole(n, len(dst), err)
}

// write copies to addr of the process.
func (s *Space) write(addr uint64, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	if s.copier != nil {
		return s.writeByCopier(addr, src)
	}
	if !s.trusted {
		return s.deliver(addr, src)
	}
	var n int
	var err error
	if s.byNumber(len(src)) {
		if !s.Alive() {
			return ib.FaultMemory
		}
		local := [1]unix.Iovec{iovec(src)}
		remote := [1]unix.RemoteIovec{{Base: uintptr(addr), Len: len(src)}}
		n, err = unix.ProcessVMWritev(s.pid, local[:], remote[:], 0)
	} else {
		n, err = unix.Pwrite(s.mem, src, int64(addr))
	}
	return whole(n, len(src), err)
}

// writeV copies buffers, one behind the other, to addr.
func (s *Space) writeV(addr uint64, bufs [][]byte) error {
	if s.copier != nil {
		return s.writeByCopier(addr, bufs...)
	}
	if !s.trusted {
		return s.deliver(addr, bufs...)
	}
	for len(bufs) > 0 {
		k, n := batch(bufs)
		var err error
		if k == 1 || !s.byNumber(n) {
			k, n, err = 1, len(bufs[0]), s.write(addr, bufs[0])
		} else {
			err = s.writeBatch(addr, bufs[:k], n)
		}
		if err != nil {
			return err
		}
		bufs, addr = bufs[k:], addr+uint64(n)
	}
	return nil
}

// batch returns how many buffers one call takes, and their bytes.
func batch(bufs [][]byte) (k, n int) {
	for k < min(len(bufs), maxVector) {
		n += len(bufs[k])
		k++
	}
	return k, n
}

// writeBatch copies up to maxVector buffers of n bytes in all with one call.
func (s *Space) writeBatch(addr uint64, bufs [][]byte, n int) error {
	if !s.Alive() {
		return ib.FaultMemory
	}
	var local [maxVector]unix.Iovec
	for i, b := range bufs {
		local[i] = iovec(b)
	}
	remote := [1]unix.RemoteIovec{{Base: uintptr(addr), Len: n}}
	done, err := unix.ProcessVMWritev(s.pid, local[:len(bufs)], remote[:], 0)
	return whole(done, n, err)
}

func iovec(b []byte) (v unix.Iovec) {
	v.Base = unsafe.SliceData(b)
	v.SetLen(len(b))
	return v
}

// whole returns what became of a copy of n bytes of which done were done.
func whole(done, n int, err error) error {
	if err != nil || done != n {
		return ib.FaultMemory
	}
	return nil
}
