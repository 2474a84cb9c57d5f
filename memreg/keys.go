package memreg

import (
	"sync/atomic"

	"github.com/gosoftroce/rocev2/ib"
)

// bucketSlots keys and their grants fill one cache line of 64 bytes.
const bucketSlots = 5

// minBuckets is the size of a new table; sizes are powers of two.
const minBuckets = 8

// quarantineKeys is how many killed keys are kept from being given out again.
const quarantineKeys = 4096

// maxDraws bounds the search for a key. A bucket with room is found with a
// chance of at least 2 in 5 a draw, so only a broken random source gets there.
const maxDraws = 1024

// maxGrowth is how often the table may be doubled for one key.
const maxGrowth = 4

// bucket holds the keys whose low bits are its index. There is no overflow:
// keys are ours to choose, so one whose bucket is full is simply not used. A
// lookup therefore reads one cache line and does the same work for every key.
//
// A slot with a key and no grant is a killed key in quarantine. Key 0 is a free
// slot.
type bucket struct {
	keys   [bucketSlots]atomic.Uint32
	grants [bucketSlots]atomic.Pointer[Grant]
}

// find returns the slot that holds key, or -1. It looks at every slot. A loop
// would take twice the time.
func (b *bucket) find(key ib.Key) int {
	k, at := uint32(key), -1
	if b.keys[0].Load() == k {
		at = 0
	}
	if b.keys[1].Load() == k {
		at = 1
	}
	if b.keys[2].Load() == k {
		at = 2
	}
	if b.keys[3].Load() == k {
		at = 3
	}
	if b.keys[4].Load() == k {
		at = 4
	}
	return at
}

// free counts the free slots.
func (b *bucket) free() int {
	n := 0
	for i := range b.keys {
		if b.keys[i].Load() == 0 {
			n++
		}
	}
	return n
}

// put stores key in a free slot, and reports whether there is one. The key is
// published last, so that a reader that finds it finds the grant.
func (b *bucket) put(key ib.Key, g *Grant) bool {
	i := b.find(0)
	if i < 0 {
		return false
	}
	b.grants[i].Store(g)
	b.keys[i].Store(uint32(key))
	return true
}

// keyTable is the hash table from keys to grants: any number of readers, one
// writer. To grow or shrink it is copied and the copy is published. A reader
// that still looks at the old one sees a state that was true when it began, and
// the pin count of the grant tells what died since.
type keyTable struct {
	buckets atomic.Pointer[[]bucket]

	// The rest is the writer's.
	used     int      // slots that are not free
	shrinkAt int      // try to shrink when used falls to this
	limit    int      // of keys in quarantine
	killed   []ib.Key // ring of keys in quarantine
	next     int      // its oldest entry, once it is full
}

func (t *keyTable) init() {
	b := make([]bucket, minBuckets)
	t.buckets.Store(&b)
	t.limit = quarantineKeys
}

func bucketOf(buckets []bucket, key ib.Key) *bucket {
	return &buckets[uint32(key)&uint32(len(buckets)-1)]
}

// lookup returns the grant that key stands for, or nil. The slot may have
// changed hands between the two loads: the caller compares the grant's own key,
// and acquire tells whether it is alive.
func (t *keyTable) lookup(key ib.Key) *Grant {
	b := bucketOf(*t.buckets.Load(), key)
	i := b.find(key)
	if i < 0 {
		return nil
	}
	return b.grants[i].Load()
}

// quarantined reports whether key was killed recently.
func (t *keyTable) quarantined(key ib.Key) bool {
	b := bucketOf(*t.buckets.Load(), key)
	i := b.find(key)
	return key != 0 && i >= 0 && b.grants[i].Load() == nil
}

// draw returns a key that is not 0, not in use, not in quarantine, not taken,
// and has room in its bucket beside taken. It reports whether random yields
// one.
func (t *keyTable) draw(random func() uint32, taken ib.Key) (ib.Key, bool) {
	buckets := *t.buckets.Load()
	for range maxDraws {
		key := ib.Key(random())
		if key == 0 || key == taken {
			continue
		}
		b := bucketOf(buckets, key)
		need := 1
		if taken != 0 && b == bucketOf(buckets, taken) {
			need = 2
		}
		if b.find(key) < 0 && b.free() >= need {
			return key, true
		}
	}
	return 0, false
}

// admit makes room for a key that was not drawn, and reports whether there is:
// it is neither in use nor in quarantine. taken is as that of draw.
func (t *keyTable) admit(key, taken ib.Key) bool {
	for range maxGrowth {
		buckets := *t.buckets.Load()
		b := bucketOf(buckets, key)
		if key == 0 || key == taken || b.find(key) >= 0 {
			return false
		}
		if free := b.free(); free > 1 || free == 1 && b != bucketOf(buckets, taken) {
			return true
		}
		t.rebuild(2 * len(buckets))
	}
	return false
}

// insert publishes a key of draw or admit.
func (t *keyTable) insert(key ib.Key, g *Grant) {
	bucketOf(*t.buckets.Load(), key).put(key, g)
	t.used++
}

// exchange has a key, which is in the table, stand for another grant.
func (t *keyTable) exchange(key ib.Key, g *Grant) {
	b := bucketOf(*t.buckets.Load(), key)
	b.grants[b.find(key)].Store(g)
}

// kill takes the grant from key and puts the key in quarantine, which frees the
// oldest key there.
func (t *keyTable) kill(key ib.Key) {
	buckets := *t.buckets.Load()
	b := bucketOf(buckets, key)
	b.grants[b.find(key)].Store(nil)
	if len(t.killed) < t.limit {
		t.killed = append(t.killed, key)
		return
	}
	oldest := t.killed[t.next]
	t.killed[t.next] = key
	t.next = (t.next + 1) % t.limit
	b = bucketOf(buckets, oldest)
	b.keys[b.find(oldest)].Store(0)
	t.used--
}

// reserve makes room for n more keys: at most 3 of 5 slots are used, so that a
// random key finds room soon.
func (t *keyTable) reserve(n int) {
	size := len(*t.buckets.Load())
	for t.used+n > 3*size {
		size *= 2
	}
	// Growing cannot fail: doubling only splits buckets.
	if size != len(*t.buckets.Load()) {
		t.rebuild(size)
	}
}

// trim gives memory back when few slots are used.
func (t *keyTable) trim() {
	size := len(*t.buckets.Load())
	if t.used > t.shrinkAt || size <= minBuckets {
		return
	}
	if !t.rebuild(size / 2) {
		t.shrinkAt = t.used / 2 // a bucket would overflow: not before fewer are used
	}
}

// rebuild copies the table to one of size buckets and publishes it. It reports
// false, and nothing changes, if some keys do not fit.
func (t *keyTable) rebuild(size int) bool {
	old := *t.buckets.Load()
	buckets := make([]bucket, size)
	for i := range old {
		for j := range old[i].keys {
			key := ib.Key(old[i].keys[j].Load())
			if key == 0 {
				continue
			}
			if !bucketOf(buckets, key).put(key, old[i].grants[j].Load()) {
				return false
			}
		}
	}
	t.buckets.Store(&buckets)
	t.shrinkAt = size / 8
	return true
}
