//go:build linux

package uverbs

import (
	"sync"

	"github.com/gosoftroce/rocev2/uverbs/quota"
)

// table gives the objects of one kind their numbers, from 0 up.
type table[T any] struct {
	most    int // numbers that there are
	kind    quota.Kind
	account *quota.Account // of the client

	mu    sync.RWMutex
	slots []*T
	free  []uint32
	used  int
}

// reserve takes a number. It reports false if there is none left.
func (t *table[T]) reserve() (uint32, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.used >= t.most || t.account.Take(t.kind, 1) != nil {
		return 0, false
	}
	t.used++
	if n := len(t.free); n > 0 {
		h := t.free[n-1]
		t.free = t.free[:n-1]
		return h, true
	}
	t.slots = append(t.slots, nil)
	return uint32(len(t.slots) - 1), true
}

// set has a number that was reserved stand for v.
func (t *table[T]) set(h uint32, v *T) {
	t.mu.Lock()
	t.slots[h] = v
	t.mu.Unlock()
}

// release gives a number back.
func (t *table[T]) release(h uint32) {
	t.mu.Lock()
	t.slots[h] = nil
	t.free = append(t.free, h)
	t.used--
	t.mu.Unlock()
	t.account.Give(t.kind, 1)
}

// get returns what a number stands for, nil if nothing.
func (t *table[T]) get(h uint32) *T {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if uint64(h) >= uint64(len(t.slots)) {
		return nil
	}
	return t.slots[h]
}

// size is above all numbers that are in use.
func (t *table[T]) size() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.slots)
}

// all returns every object.
func (t *table[T]) all() []*T {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var list []*T
	for _, v := range t.slots {
		if v != nil {
			list = append(list, v)
		}
	}
	return list
}
