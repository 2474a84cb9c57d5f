package hca

import (
	"slices"
	"sync"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
)

// Memory whose pages may be elsewhere (memreg.PagedMemory, such as a mapped
// file) is not touched under a shard's lock before they are there: a page that
// a disk or a network brings would hold up every queue pair of the shard. A
// queue pair that needs one puts off what needs it, and the pager fetches the
// page with no lock held, on goroutines that are there while something is to be
// fetched. A region that is closed waits for those that are fetching pages of
// it.
//
// What a FLUSH brings to stable storage goes the same way.

const (
	// maxPagers bounds the goroutines, each of which may keep a thread in
	// the kernel.
	maxPagers = 64
	// maxRegionPagers are those for one region: one whose pages never come
	// must not keep the pages of the others from coming.
	maxRegionPagers = 4
)

type pager struct {
	mu      sync.Mutex
	waiting []pageJob
	busy    map[*memreg.Region]int // goroutines that fetch pages of it now
	changed sync.Cond              // busy has, with mu
	workers int
	wg      sync.WaitGroup
}

// pageJob is memory to be fetched and who waits for it.
type pageJob struct {
	f      qp.Fetch
	waiter pageWaiter
}

// pageWaiter is told when the memory was fetched, or could not be.
type pageWaiter interface{ fetched(f qp.Fetch) }

func newPager() *pager {
	p := &pager{busy: map[*memreg.Region]int{}}
	p.changed.L = &p.mu
	return p
}

func (p *pager) add(j pageJob) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = append(p.waiting, j)
	if p.workers < maxPagers {
		p.workers++
		p.wg.Go(p.work)
	}
}

// work does jobs until there is none that may be done.
func (p *pager) work() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		j, ok := p.take()
		if !ok {
			p.workers--
			return
		}
		region := j.f.Region
		alive := region != nil && region.Alive()
		if alive {
			p.busy[region]++
		}
		p.mu.Unlock()
		j.f.Fault = ib.FaultGone
		if alive {
			j.f.Fault = j.f.Fetch()
			p.done(region)
		}
		j.waiter.fetched(j.f)
		p.mu.Lock()
	}
}

// fetch fetches memory for a caller who waits. It returns false if the region
// is gone.
func (p *pager) fetch(m memreg.Missing) bool {
	p.mu.Lock()
	alive := m.Region.Alive()
	if alive {
		p.busy[m.Region]++
	}
	p.mu.Unlock()
	if alive {
		m.Fetch()
		p.done(m.Region)
	}
	return alive
}

// done ends a fetch.
func (p *pager) done(r *memreg.Region) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy[r]--; p.busy[r] == 0 {
		delete(p.busy, r)
	}
	p.changed.Broadcast()
}

// take takes the first job whose region has not enough goroutines yet. That of
// a region which is gone only tells its queue pair.
func (p *pager) take() (pageJob, bool) {
	for i, j := range p.waiting {
		if p.busy[j.f.Region] < maxRegionPagers || !j.f.Region.Alive() {
			p.waiting = slices.Delete(p.waiting, i, i+1)
			return j, true
		}
	}
	return pageJob{}, false
}

// leave returns when nobody fetches pages of a region, which was deregistered:
// then nobody will.
func (p *pager) leave(r *memreg.Region) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.busy[r] > 0 {
		p.changed.Wait()
	}
}
