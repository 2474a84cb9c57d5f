//go:build linux

package ucma

import (
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/cm"
	uabi "github.com/gosoftroce/rocev2/uverbs/abi"
)

// ident is an ID of a program. The mutex of its client guards it.
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
	known            *peerKey // registered for Known
}

// group is a multicast group that an ID has joined.
type group struct {
	number   uint32
	uid      uint64
	of       *ident
	reported uint32
	left     bool
}

// numbers gives numbers to IDs, or to groups, of all clients of a user:
// librdmacm takes none above 65535, and an ID keeps its number when it migrates
// to another client of the user.
type numbers struct {
	mu   sync.Mutex
	used map[uint32]bool
	next uint32
}

const maxNumber = 65535

// userNumbers are those of a user: who takes all leaves others theirs.
type userNumbers struct{ ids, groups numbers }

// users has the numbers of every user who has been here.
var users = struct {
	sync.Mutex
	of map[uint32]*userNumbers
}{of: map[uint32]*userNumbers{}}

func numbersOf(uid uint32) *userNumbers {
	users.Lock()
	defer users.Unlock()
	n := users.of[uid]
	if n == nil {
		n = &userNumbers{ids: numbers{used: map[uint32]bool{}}, groups: numbers{used: map[uint32]bool{}}}
		users.of[uid] = n
	}
	return n
}

var orders atomic.Uint64

// take returns a free number, and false if there is none.
func (n *numbers) take() (uint32, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
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

func (n *numbers) give(v uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.used, v)
}

func (n *numbers) has(v uint32) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.used[v]
}

// enter gives an ID a number. It returns nil if there is none, or the user has
// as many as he may.
func (c *Client) enter(id *cm.ID, uid uint64) *ident {
	if !pay(c) {
		return nil
	}
	n, ok := c.numbers.ids.take()
	if !ok {
		repay(c)
		return nil
	}
	i := &ident{number: n, id: id, uid: uid}
	c.idents[n] = i
	c.byID[id] = i
	return i
}

// forget gives back what an ID has of what clients share.
func (n *userNumbers) forget(i *ident) {
	n.ids.give(i.number)
	i.unknow()
}

// find returns an ID of the client.
func (c *Client) find(number uint32) (*ident, uabi.Errno) {
	if i := c.idents[number]; i != nil {
		return i, 0
	}
	if c.numbers.ids.has(number) {
		return nil, uabi.EINVAL // of another file
	}
	return nil, uabi.ENOENT
}

// usable is find for what needs the device.
func (c *Client) usable(number uint32) (*ident, uabi.Errno) {
	i, errno := c.find(number)
	if errno == 0 && i.removed {
		return nil, uabi.EIO
	}
	return i, errno
}
