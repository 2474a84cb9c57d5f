//go:build linux

package uverbs

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
	"github.com/gosoftroce/rocev2/programs/uverbs/ring"
)

const (
	maxQPs = 65536
	maxCQs = 16384
)

// area is the memory that a client shares with the program's library: rings,
// each on pages of its own after the first page, which has none. The file has a
// fixed size, larger than what may be used, and is sealed: no process can make
// it shorter, which would be a bus error here.
type area struct {
	fd   int
	mem  []byte
	most int // bytes of rings

	mu   sync.Mutex
	used int
	free []span // by offset; no two touch
}

// span is a part of the memory.
type span struct{ off, n int }

// newArea makes memory for rings of the given number of bytes in all.
func newArea(most int) (*area, error) {
	page := os.Getpagesize()
	most = (most + page - 1) / page * page
	size := page + 2*most // room for gaps
	fd, err := unix.MemfdCreate("rocev2-verbs", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memory for queues: %w", err)
	}
	a := &area{fd: fd, most: most, free: []span{{page, size - page}}}
	if err := a.fill(size); err != nil {
		return nil, errors.Join(fmt.Errorf("memory for queues: %w", err), unix.Close(fd))
	}
	return a, nil
}

// fill gives the file its size, and maps it.
func (a *area) fill(size int) (err error) {
	if err := unix.Ftruncate(a.fd, int64(size)); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(uintptr(a.fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return err
	}
	a.mem, err = unix.Mmap(a.fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	return err
}

// ringSpace is the memory of one ring.
type ringSpace struct {
	area  *area
	at    span
	mem   []byte
	shape ring.Shape
}

// alloc takes memory for a ring, which is zero. The error is ENOMEM.
func (a *area) alloc(shape ring.Shape) (*ringSpace, error) {
	n := shape.Size()
	if n > uint64(a.most) {
		return nil, abi.ENOMEM
	}
	page := os.Getpagesize()
	size := (int(n) + page - 1) / page * page
	a.mu.Lock()
	defer a.mu.Unlock()
	if size > a.most-a.used {
		return nil, abi.ENOMEM
	}
	for i, s := range a.free {
		if s.n < size {
			continue
		}
		if s.n == size {
			a.free = slices.Delete(a.free, i, i+1)
		} else {
			a.free[i] = span{s.off + size, s.n - size}
		}
		a.used += size
		end := s.off + size
		return &ringSpace{a, span{s.off, size}, a.mem[s.off:end:end], shape}, nil
	}
	return nil, abi.ENOMEM
}

// info says where the program maps the memory. A ring is less than 4 GiB, as
// all of the area.
func (r *ringSpace) info() abi.MMInfo {
	if r == nil {
		return abi.MMInfo{}
	}
	return abi.MMInfo{Offset: uint64(r.at.off), Size: uint32(r.at.n)}
}

// entries returns how many elements the ring holds.
func (r *ringSpace) entries() uint32 { return uint32(r.shape.Cap()) }

// move has resize take a queue to a ring of another shape, which it is in then.
func (r *ringSpace) move(shape ring.Shape, resize func(to *ringSpace) error) abi.Errno {
	to, err := r.area.alloc(shape)
	if err != nil {
		return errnoOf(err)
	}
	if resize(to) != nil {
		to.release()
		return abi.EINVAL
	}
	r.release()
	*r = *to
	return 0
}

// release gives the memory back to the system, and its place to other rings.
// The program may still have it mapped, and sees zeros.
func (r *ringSpace) release() {
	if r == nil {
		return
	}
	a := r.area
	// Without it the next ring would find what is there now, which its
	// maker overwrites.
	_ = unix.Fallocate(a.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(r.at.off), int64(r.at.n))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used -= r.at.n
	i, _ := slices.BinarySearchFunc(a.free, r.at, func(x, y span) int { return x.off - y.off })
	a.free = slices.Insert(a.free, i, r.at)
	if i+1 < len(a.free) && a.free[i].off+a.free[i].n == a.free[i+1].off {
		a.free[i].n += a.free[i+1].n
		a.free = slices.Delete(a.free, i+1, i+2)
	}
	if i > 0 && a.free[i-1].off+a.free[i-1].n == a.free[i].off {
		a.free[i-1].n += a.free[i].n
		a.free = slices.Delete(a.free, i, i+1)
	}
}

// close unmaps the memory, which must no longer be in use.
func (a *area) close() error {
	return errors.Join(unix.Munmap(a.mem), unix.Close(a.fd))
}
