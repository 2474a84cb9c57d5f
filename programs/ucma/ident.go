//go:build linux

package ucma

import (
	"github.com/gosoftroce/rocev2/programs/ucma/abi"
	uabi "github.com/gosoftroce/rocev2/programs/uverbs/abi"
	"github.com/gosoftroce/rocev2/rdma/cm"
)

// ident is an ID of a program.
type ident struct {
	number    uint32
	id        *cm.ID
	uid       uint64 // the program's; 0 for a request that is not accepted: no event comes
	datagrams bool   // its queue pair is of type UD
	reported  uint32 // events that the program has taken

	wild    bool // bound to the unspecified address
	wildIs6 bool // that of IPv6
	engaged bool // it has, or had, a peer
	routed  bool // its path is resolved
	removed bool // its device is gone
	class   uint8

	backlog, waiting int      // of a listener: requests that the program has not taken
	joins            []*group // whose event will come, oldest first
}

// group is a multicast group that an ID has joined.
type group struct {
	number   uint32
	uid      uint64
	of       *ident
	reported uint32
	left     bool
}

// numbers gives numbers to IDs, or to groups, of all clients: librdmacm takes
// none above 65535, and an ID keeps its number when it migrates to another
// client.
type numbers struct {
	used map[uint32]bool
	next uint32
}

const maxNumber = 65535

// all are the numbers of the program.
var all = struct{ ids, groups numbers }{numbers{used: map[uint32]bool{}}, numbers{used: map[uint32]bool{}}}

// take returns a free number, and false if there is none.
func (n *numbers) take() (uint32, bool) {
	if len(n.used) > maxNumber {
		return 0, false
	}
	for n.used[n.next] {
		n.next = (n.next + 1) % (maxNumber + 1)
	}
	v := n.next
	n.used[v] = true
	n.next = (n.next + 1) % (maxNumber + 1)
	return v, true
}

func (n *numbers) give(v uint32)     { delete(n.used, v) }
func (n *numbers) has(v uint32) bool { return n.used[v] }

// idTable is the IDs and the groups of a client.
type idTable struct {
	idents map[uint32]*ident
	byID   map[*cm.ID]*ident
	groups map[uint32]*group
}

func newIDTable() idTable {
	return idTable{map[uint32]*ident{}, map[*cm.ID]*ident{}, map[uint32]*group{}}
}

// size returns how many IDs and groups there are.
func (t *idTable) size() int { return len(t.idents) + len(t.groups) }

// enter gives an ID a number. It returns nil if there is none.
func (t *idTable) enter(id *cm.ID, uid uint64) *ident {
	n, ok := all.ids.take()
	if !ok {
		return nil
	}
	i := &ident{number: n, id: id, uid: uid}
	t.idents[n] = i
	t.byID[id] = i
	return i
}

// find returns an ID of the client.
func (t *idTable) find(number uint32) (*ident, uabi.Errno) {
	if i := t.idents[number]; i != nil {
		return i, 0
	}
	if all.ids.has(number) {
		return nil, uabi.EINVAL // of another file
	}
	return nil, uabi.ENOENT
}

// usable is find for what needs the device.
func (t *idTable) usable(number uint32) (*ident, uabi.Errno) {
	i, errno := t.find(number)
	if errno == 0 && i.removed {
		return nil, uabi.EIO
	}
	return i, errno
}

// named returns the ID that a command names, with its other value.
func (t *idTable) named(cmd *abi.Command) (*ident, uint32, uabi.Errno) {
	in, errno := abi.ParseID(cmd.Number, cmd.In)
	if errno != 0 {
		return nil, 0, errno
	}
	i, errno := t.usable(in.ID)
	return i, in.Value, errno
}

// remove takes an ID and its groups out, and gives their numbers back.
func (t *idTable) remove(i *ident) {
	all.ids.give(i.number)
	delete(t.idents, i.number)
	delete(t.byID, i.id)
	for _, g := range t.groups {
		if g.of == i {
			t.leave(g)
		}
	}
}

// join enters a group of an ID, whose event will come. It returns nil if there
// is no number.
func (t *idTable) join(i *ident, uid uint64) *group {
	n, ok := all.groups.take()
	if !ok {
		return nil
	}
	g := &group{number: n, uid: uid, of: i}
	t.groups[n] = g
	return g
}

// leave takes a group out.
func (t *idTable) leave(g *group) {
	delete(t.groups, g.number)
	all.groups.give(g.number)
}

// move takes an ID and its groups to the table of another client.
func (t *idTable) move(i *ident, to *idTable) {
	delete(t.idents, i.number)
	delete(t.byID, i.id)
	to.idents[i.number], to.byID[i.id] = i, i
	for n, g := range t.groups {
		if g.of == i {
			delete(t.groups, n)
			to.groups[n] = g
		}
	}
}

// clear takes all of them out.
func (t *idTable) clear() {
	for _, i := range t.idents {
		all.ids.give(i.number)
	}
	for _, g := range t.groups {
		all.groups.give(g.number)
	}
	*t = idTable{}
}
