package mapping

import (
	"errors"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/gosoftroce/rocev2/memreg"
)

// presence knows which pages can be touched without waiting for them. What was
// found or fetched holds for a while only: the system may take a clean page
// away at any time, and once it has written a page to the file the next write
// to that must be allowed by the file system again. For that, one over a
// network, or in another process, may take any time.
type presence struct {
	data []byte
	page uint64 // bytes
	residence
	count  uint64 // pages
	chunks []atomic.Pointer[chunk]
	flush  atomic.Int64 // what was to be written until then may not be: a flush has begun since
}

// chunk is what is known of chunkPages pages: until when each may be touched,
// on clock. It is made when one of them is touched first, so that a mapping of
// any size costs next to nothing until then.
type chunk struct{ read, write [chunkPages]atomic.Int64 }

const chunkPages = 4096

// until returns until when a page may be touched, for reading and for writing.
func (p *presence) until(page uint64) (read, write int64) {
	c := p.chunks[page/chunkPages].Load()
	if c == nil {
		return 0, 0
	}
	return c.read[page%chunkPages].Load(), c.write[page%chunkPages].Load()
}

// chunk returns the chunk that a page is in, and makes it.
func (p *presence) chunk(page uint64) *chunk {
	at := &p.chunks[page/chunkPages]
	if c := at.Load(); c != nil {
		return c
	}
	at.CompareAndSwap(nil, new(chunk))
	return at.Load()
}

const (
	// readFor is how long a page is taken to stay in memory. Where the
	// system can be asked it is asked again then.
	readFor = 50 * time.Millisecond
	// fetchedFor is how long a page may be written that was fetched for it,
	// and how long one that cannot be had is left alone, so that an access
	// shows it. It is longer than a peer takes to send a packet again.
	fetchedFor = 2 * time.Second
)

var clockBase = time.Now()

// clock is in nanoseconds, and never 0.
func clock() int64 { return int64(time.Since(clockBase)) + 1 }

func newPresence(data []byte, r residence) *presence {
	page := os.Getpagesize()
	n := (len(data)-1)/page + 1
	return &presence{data: data, page: uint64(page), residence: r, count: uint64(n), chunks: make([]atomic.Pointer[chunk], (n-1)/chunkPages+1)}
}

// pages returns the pages first to last-1 of n bytes at off, all of the
// mapping.
func (p *presence) pages(off, n uint64) (first, last uint64) {
	size := uint64(len(p.data))
	off = min(off, size)
	return off / p.page, (min(off+n, size) + p.page - 1) / p.page
}

// bytes returns the memory of pages.
func (p *presence) bytes(first, last uint64) []byte {
	return p.data[first*p.page : min(last*p.page, uint64(len(p.data)))]
}

// present reports whether n bytes at off can be touched now.
func (p *presence) present(off, n uint64, write bool) bool {
	now := clock()
	first, last := p.pages(off, n)
	flushed := p.flush.Load()
	write = write && !p.local
	fresh := true
	for i := first; i < last; i++ {
		read, written := p.until(i)
		if write && (written <= now || written <= flushed) {
			return false
		}
		fresh = fresh && read > now
	}
	return fresh || p.asks && p.ask(now, first, last)
}

// ask asks the system for the pages first to last-1, and some that follow, for
// others will be asked for soon.
func (p *presence) ask(now int64, first, last uint64) bool {
	here := first + uint64(resident(p.bytes(first, max(last, min(first+askedAtOnce, p.count)))))
	until := now + int64(readFor)
	for i := first; i < here; i++ {
		raise(&p.chunk(i).read[i%chunkPages], until)
	}
	return here >= last
}

// askedAtOnce is how many pages are asked for together.
const askedAtOnce = 64

// residence is what the system says of pages.
type residence struct {
	asks  bool // which are in memory, and truly
	local bool // their writes wait for nothing but this machine's disks
}

// raise does not shorten what another one has found.
func raise(v *atomic.Int64, to int64) {
	for old := v.Load(); old < to; old = v.Load() {
		if v.CompareAndSwap(old, to) {
			return
		}
	}
}

// fetch brings pages into memory, and waits for them.
func (p *presence) fetch(off, n uint64, write bool) {
	first, last := p.pages(off, n)
	if first == last {
		return
	}
	if populate(p.bytes(first, last), write) == nil {
		p.mark(first, last, readFor, write)
		return
	}
	for i := first; i < last; i++ { // some cannot be had
		stays := readFor
		if populate(p.bytes(i, i+1), write) != nil {
			stays = fetchedFor
		}
		p.mark(i, i+1, stays, write)
	}
}

func (p *presence) mark(first, last uint64, stays time.Duration, write bool) {
	now := clock()
	if write || !p.asks { // what is to be written to the file stays until then
		stays = fetchedFor
	}
	for i := first; i < last; i++ {
		c := p.chunk(i)
		raise(&c.read[i%chunkPages], now+int64(stays))
		if write {
			raise(&c.write[i%chunkPages], now+int64(fetchedFor))
		}
	}
}

// flushed says that pages may have been written to the file.
func (p *presence) flushed() { raise(&p.flush, clock()+int64(fetchedFor)) }

// errNoPopulate says that the system does not fetch pages when asked.
var errNoPopulate = errors.New("no such call")

// populate fetches pages by a system call, in which a goroutine can wait
// without a processor of Go's, so that garbage collection need not wait for it.
// Where there is none it touches them.
func populate(b []byte, write bool) error {
	err := populatePages(b, write)
	if err != errNoPopulate {
		return err
	}
	return touch(b, write)
}

// touch touches each page of b, and returns an error if one cannot be.
func touch(b []byte, write bool) (err error) {
	defer memreg.Catch(debug.SetPanicOnFault(true), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uint64(len(b)), &err)
	for i := 0; i < len(b); i += os.Getpagesize() {
		word := (*uint32)(unsafe.Pointer(&b[i])) // a page of a mapping begins on a page, and has that much
		if write {
			atomic.AddUint32(word, 0)
		} else {
			atomic.LoadUint32(word)
		}
	}
	return nil
}
