//go:build linux

package ucma

import (
	"testing"

	"github.com/gosoftroce/rocev2/programs/ucma/abi"
	uabi "github.com/gosoftroce/rocev2/programs/uverbs/abi"
	"github.com/gosoftroce/rocev2/rdma/cm"
)

// These are tests of the parts of a client, each without the others.

// An ID goes with its groups, keeps its number in another table, and is not
// found in a table that does not have it.
func TestIDTable(t *testing.T) {
	mu.Lock()
	defer mu.Unlock()
	a, b := newIDTable(), newIDTable()
	defer a.clear()
	defer b.clear()
	find := func(t *idTable, n uint32) uabi.Errno { _, errno := t.find(n); return errno }
	i := a.enter(new(cm.ID), 7)
	g := a.join(i, 8)
	if a.size() != 2 || find(&a, i.number) != 0 || find(&b, i.number) != uabi.EINVAL {
		t.Errorf("size %d, errno %d here and %d there", a.size(), find(&a, i.number), find(&b, i.number))
	}
	a.move(i, &b)
	if a.size() != 0 || b.size() != 2 || find(&a, i.number) != uabi.EINVAL || b.groups[g.number] != g {
		t.Errorf("after the move: %+v, %+v", a, b)
	}
	i.removed = true
	if _, errno := b.usable(i.number); errno != uabi.EIO {
		t.Errorf("an ID without a device: errno %d", errno)
	}
	b.remove(i)
	if b.size() != 0 || find(&b, i.number) != uabi.ENOENT || all.groups.has(g.number) {
		t.Errorf("after it was removed: %+v", b)
	}
}

// A listener's requests count while they wait, in whichever queue.
func TestEventQueue(t *testing.T) {
	a, b := newEventQueue(), newEventQueue()
	l, other := &ident{uid: 1, number: 1}, &ident{uid: 2, number: 2}
	ids := []*cm.ID{new(cm.ID), new(cm.ID)}
	a.add(&event{of: l, request: ids[0]})
	a.fail(other, cm.EventAddrError, uabi.ENODEV)
	a.add(&event{of: l, request: ids[1]})
	if l.waiting != 2 || a.first().request != ids[0] {
		t.Errorf("%d requests wait, the first is %+v", l.waiting, a.first())
	}
	a.take()
	if l.waiting != 1 || l.reported != 1 || a.requests[ids[0]] != nil {
		t.Errorf("%d requests wait, %d were taken", l.waiting, l.reported)
	}
	var moved []*cm.ID
	a.move(l, &b, func(id *cm.ID) { moved = append(moved, id) })
	if len(moved) != 1 || moved[0] != ids[1] || l.waiting != 1 || b.requests[ids[1]] == nil || a.requests[ids[1]] != nil {
		t.Errorf("moved %v; %d requests wait", moved, l.waiting)
	}
	want := abi.Event{UID: 2, ID: 2, Type: uint32(cm.EventAddrError), Status: -int32(uabi.ENODEV)}
	if e := a.first(); e == nil || e.Event != want {
		t.Errorf("the event is %+v, want %+v", e, want)
	}
	a.drop(func(e *event) bool { return e.of == other })
	if a.first() != nil || b.first() == nil {
		t.Errorf("left are %+v and %+v", a.first(), b.first())
	}
}
