//go:build linux

package uverbs

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/uverbs/abi"
	"github.com/gosoftroce/rocev2/uverbs/quota"
)

// A program that has got an open file from another one, or has it a second
// time, makes a context of it (ibv_import_device). Asynchronous events name
// what they are of by addresses of a program, so each program has a file of
// them, with the events of what it has made.

// maxImports bounds the programs that have imported a file at once.
const maxImports = 64

// imports are those of a client.
type imports struct {
	owner int   // the process that has opened the file; guarded by Client.mu
	home  *pipe // of who writes the command that is carried out; likewise

	importing sync.Mutex
	imported  map[int]*pipe // by process
}

// homeOf returns where asynchronous events go of what a program makes.
func (c *Client) homeOf(p *Peer) *pipe {
	c.importing.Lock()
	defer c.importing.Unlock()
	if own := c.imported[p.PID]; own != nil {
		return own
	}
	return c.async.Load()
}

// homes returns all files of asynchronous events.
func (c *Client) homes() (all []*pipe) {
	if p := c.async.Load(); p != nil {
		all = append(all, p)
	}
	c.importing.Lock()
	defer c.importing.Unlock()
	for _, p := range c.imported {
		all = append(all, p)
	}
	return all
}

// Import carries out the command that asks for a context where the file has one
// already.
func (c *Client) Import(p *Peer, b []byte) abi.Reply {
	r, errno := abi.Parse(b)
	if errno != 0 {
		return abi.Fail(errno)
	}
	if r.Command != abi.GetContext || r.Extended {
		return abi.Fail(abi.EINVAL)
	}
	if c.async.Load() == nil {
		return c.CommandOf(p, b)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return abi.Fail(abi.EIO)
	}
	file, err := c.importEvents(p)
	if err != nil {
		return abi.Fail(abi.EMFILE)
	}
	out := c.context(&call{r, p}, file)
	out.N = len(b)
	return out
}

// importEvents returns the file of asynchronous events of a program, again if
// it has one.
func (c *Client) importEvents(p *Peer) (*os.File, error) {
	c.importing.Lock()
	defer c.importing.Unlock()
	own := c.imported[p.PID]
	if p.PID == c.owner {
		own = c.async.Load()
	}
	if own != nil && !own.abandoned() {
		return own.again()
	}
	for pid, p := range c.imported {
		if p.abandoned() {
			p.close()
			delete(c.imported, pid)
			c.account.Give(quota.Channels, 1)
		}
	}
	if len(c.imported) >= maxImports {
		return nil, fmt.Errorf("%d programs have imported the device", maxImports)
	}
	if err := c.account.Take(quota.Channels, 1); err != nil {
		return nil, err
	}
	own, file, err := newPipe(abi.AsyncEventLen)
	if err != nil {
		c.account.Give(quota.Channels, 1)
		return nil, err
	}
	if c.imported == nil {
		c.imported = map[int]*pipe{}
	}
	c.imported[p.PID] = own
	return file, nil
}

// again returns one more end of the pipe for a program.
func (p *pipe) again() (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, unix.EPIPE
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", p.fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "events"), nil
}

// HasPD reports whether there is a protection domain with a handle.
func (c *Client) HasPD(handle uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closed && c.domains.get(handle) != nil
}

// Keys returns the keys of the region with a handle, and its length.
func (c *Client) Keys(handle uint32) (lkey, rkey uint32, length uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mr := c.regions.get(handle)
	if c.closed || mr == nil {
		return 0, 0, 0, false
	}
	core := mr.core.Region()
	return uint32(core.LKey()), uint32(core.RKey()), mr.length, true
}
