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
	// the kernel. A context that has none may have one beyond that.
	maxPagers = 64
	// maxContextPagers are those for one context: a program whose pages
	// never come must not keep those of the others from coming.
	maxContextPagers = 16
	// maxRegionPagers are those for one region, for the same reason.
	maxRegionPagers = 4
)

type pager struct {
	mu      sync.Mutex
	waiting []pageJob
	busy    map[*memreg.Region]int // how many fetches of its pages go on now
	changed sync.Cond              // busy has, with mu
	running int                    // goroutines that fetch pages
	owners  map[*Context]int       // of these, how many each context has
	wg      sync.WaitGroup
	spawn   func(job func()) // does a job, beside the caller
}

// pageJob is memory to be fetched and what waits for it.
type pageJob struct {
	f      qp.Fetch
	owner  *Context
	waiter pageWaiter
}

// pageWaiter is told when the memory was fetched, or could not be.
type pageWaiter interface{ fetched(f qp.Fetch) }

func newPager() *pager {
	p := &pager{busy: map[*memreg.Region]int{}, owners: map[*Context]int{}}
	p.changed.L = &p.mu
	p.spawn = p.wg.Go
	return p
}

func (p *pager) add(j pageJob) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = append(p.waiting, j)
	p.start()
}

// start begins what may be done. The caller holds mu.
func (p *pager) start() {
	for i := 0; i < len(p.waiting); {
		j := p.waiting[i]
		alive := j.alive()
		if alive && !p.room(&j) {
			i++
			continue
		}
		p.waiting = slices.Delete(p.waiting, i, i+1)
		if alive {
			p.busy[j.f.Region]++
			p.running++
			p.owners[j.owner]++
		}
		p.spawn(func() { p.do(j, alive) })
	}
}

// alive reports whether the region of the job is. If not the job only tells its
// queue pair.
func (j *pageJob) alive() bool { return j.f.Region != nil && j.f.Region.Alive() }

// room reports whether there may be one more goroutine for what the job is
// about.
func (p *pager) room(j *pageJob) bool {
	n := p.owners[j.owner]
	return p.busy[j.f.Region] < maxRegionPagers && n < maxContextPagers && (p.running < maxPagers || n == 0)
}

// do does a job, and begins what that has made room for.
func (p *pager) do(j pageJob, alive bool) {
	j.f.Fault = ib.FaultGone
	if alive {
		j.f.Fault = j.f.Fetch()
		p.done(j.f.Region)
	}
	j.waiter.fetched(j.f)
	if !alive {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	if p.owners[j.owner]--; p.owners[j.owner] == 0 {
		delete(p.owners, j.owner)
	}
	p.start()
}

// fetch fetches memory for a caller that waits. It returns false if the region
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

// leave returns when no pages of a region are being fetched. The region was
// deregistered, so that none will be later.
func (p *pager) leave(r *memreg.Region) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.start() // those that wait for it are told now
	for p.busy[r] > 0 {
		p.changed.Wait()
	}
}

// await returns when the fetches have ended that fetching reports. They are not
// asked for again.
func (p *pager) await(fetching func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for fetching() {
		p.changed.Wait()
	}
}
