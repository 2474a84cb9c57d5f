//go:build linux

package uverbs

import (
	"sync"

	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
)

// table gives the objects of one kind their numbers, from 0 up. One command at
// a time adds and takes away.
type table[T any] struct {
	most int // numbers that there are

	mu    sync.RWMutex
	slots []*T
	free  []uint32
}

// add enters what make makes of a free number. Without one it is ENOMEM.
func (t *table[T]) add(make func(h uint32) (*T, error)) (uint32, error) {
	h, last := uint32(len(t.slots)), len(t.free)-1
	switch {
	case last >= 0:
		h = t.free[last]
	case len(t.slots) >= t.most:
		return 0, abi.ENOMEM
	}
	v, err := make(h)
	if err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if last >= 0 {
		t.slots[h], t.free = v, t.free[:last]
	} else {
		t.slots = append(t.slots, v)
	}
	return h, nil
}

// release gives a number back.
func (t *table[T]) release(h uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slots[h] = nil
	t.free = append(t.free, h)
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
