//go:build linux

package uverbs

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/uverbs/abi"
	"github.com/gosoftroce/rocev2/uverbs/quota"
)

// The doorbell area, at the beginning of the memory that a client shares.
//
//	0x00000: magic   0x00004: version   0x00008: the daemon sleeps
//	0x0000c: the program has polled, and found nothing
//	0x00010: it waits for completions on the futex at 0x00014, which grows by 2
//	         with each, and by 1 where it is woken for other reasons
//	0x00018: the processor of who serves the client
//	0x0001c: the program moves bulk data: it waits wherever it runs
//	0x00040: a bit for each word of the bells that is not 0 (16 × 8 bytes)
//	0x01000: a bit for each queue pair (1024 × 8 bytes)
//	0x04000: a bit for each queue pair that is not ready to send (1024 × 8 bytes)
//	0x10000: how each completion queue is armed (16384 × 4 bytes)
//
// A program that has posted sets the bit of the queue pair, then the bit of its
// word. If the daemon sleeps, it takes that flag away, and writes to the
// eventfd. Where the queue pair is not ready to send it asks by a command,
// which is refused. Programs arm a completion queue themselves, see CompQueue.
const (
	areaLen     = 0x20000
	areaMagic   = 0x524f4345
	areaVersion = 1

	maxQPs = 65536
	maxCQs = 16384
)

// bellArea is the layout of the doorbell area.
type bellArea struct {
	magic, version uint32
	sleeping       atomic.Uint32
	polling        atomic.Uint32
	waiting        atomic.Uint32
	completions    atomic.Uint32
	cpu            atomic.Uint32
	bulk           atomic.Uint32
	_              [0x40 - 32]byte
	summary        [16]atomic.Uint64
	_              [0x1000 - 0x40 - 16*8]byte
	bells          [maxQPs / 64]atomic.Uint64
	_              [0x4000 - 0x1000 - maxQPs/8]byte
	unready        [maxQPs / 64]atomic.Uint64
	_              [0x10000 - 0x4000 - maxQPs/8]byte
	arm            [maxCQs]atomic.Uint32
}

// told says that there is a completion, and wakes a program that waits for one
// after it has polled.
func (a *bellArea) told() { a.wakeFor(2) }

// wakeWaiting wakes a program that waits, though there may be no completion.
func (a *bellArea) wakeWaiting() {
	if a.waiting.Load() != 0 {
		a.wakeFor(1)
	}
}

func (a *bellArea) wakeFor(n uint32) {
	a.completions.Add(n) // who is about to wait does not
	if a.waiting.Load() != 0 && a.waiting.Swap(0) != 0 {
		a.wake()
	}
}

// wake wakes threads that wait, and returns how many.
func (a *bellArea) wake() int {
	n, _, _ := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&a.completions)), futexWake, mostWoken, 0, 0, 0)
	return int(n)
}

// mostWoken is how many threads of a program a completion wakes: others of the
// device wait for that. It is more than poll on one processor. Who is left
// waits for some milliseconds.
const mostWoken = 64

// noCPU is no processor: programs wait for nobody.
const noCPU = math.MaxUint32

// futexWake is FUTEX_WAKE, between processes.
const futexWake = 1

// area is the memory that a client shares: the doorbell area, and rings behind
// it, each on pages of its own. The file has a fixed size, larger than what may
// be used. So neither side can make it shorter, which would be a bus error for
// the other.
type area struct {
	*bellArea
	file *os.File
	mem  []byte
	most int // bytes of rings

	account *quota.Account // of the client

	mu   sync.Mutex
	used int
	free []span // by offset; no two touch
}

// span is a part of the memory.
type span struct{ off, n int }

// newArea makes memory for so many bytes of rings.
func newArea(most int, account *quota.Account) (*area, error) {
	page := os.Getpagesize()
	most = (most + page - 1) / page * page
	size := areaLen + 2*most // room for gaps
	fd, err := unix.MemfdCreate("rocev2-verbs", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memory for queues: %w", err)
	}
	a := &area{file: os.NewFile(uintptr(fd), "rings"), most: most, account: account, free: []span{{areaLen, size - areaLen}}}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, errors.Join(fmt.Errorf("memory for queues: %w", err), a.file.Close())
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return nil, errors.Join(fmt.Errorf("memory for queues: %w", err), a.file.Close())
	}
	a.mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("memory for queues: %w", err), a.file.Close())
	}
	a.bellArea = (*bellArea)(unsafe.Pointer(unsafe.SliceData(a.mem)))
	a.magic, a.version = areaMagic, areaVersion
	a.cpu.Store(noCPU)
	return a, nil
}

// ringSpace is the memory of one ring.
type ringSpace struct {
	area *area
	span span
}

// alloc takes memory for a ring of n bytes, which is zero. The error is ENOMEM.
func (a *area) alloc(n uint64) (*ringSpace, error) {
	if n == 0 || n > uint64(a.most) {
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
		if a.account.Take(quota.RingBytes, int64(size)) != nil {
			break
		}
		if s.n == size {
			a.free = slices.Delete(a.free, i, i+1)
		} else {
			a.free[i] = span{s.off + size, s.n - size}
		}
		a.used += size
		return &ringSpace{a, span{s.off, size}}, nil
	}
	return nil, abi.ENOMEM
}

// bytes returns the memory.
func (r *ringSpace) bytes() []byte {
	return r.area.mem[r.span.off : r.span.off+r.span.n : r.span.off+r.span.n]
}

// info says where the program maps the memory. A ring is less than 4 GiB, as
// all of the area.
func (r *ringSpace) info() abi.MMInfo {
	if r == nil {
		return abi.MMInfo{}
	}
	return abi.MMInfo{Offset: uint64(r.span.off), Size: uint32(r.span.n)}
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
	_ = unix.Fallocate(int(a.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(r.span.off), int64(r.span.n))
	a.account.Give(quota.RingBytes, int64(r.span.n))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used -= r.span.n
	i, _ := slices.BinarySearchFunc(a.free, r.span, func(x, y span) int { return x.off - y.off })
	a.free = slices.Insert(a.free, i, r.span)
	if i+1 < len(a.free) && a.free[i].off+a.free[i].n == a.free[i+1].off {
		a.free[i].n += a.free[i+1].n
		a.free = slices.Delete(a.free, i+1, i+2)
	}
	if i > 0 && a.free[i-1].off+a.free[i-1].n == a.free[i].off {
		a.free[i-1].n += a.free[i].n
		a.free = slices.Delete(a.free, i, i+1)
	}
}

// close unmaps the memory. Nobody uses it any more.
func (a *area) close() error {
	return errors.Join(unix.Munmap(a.mem), a.file.Close())
}
