package programs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/ucma"
	"github.com/gosoftroce/rocev2/uverbs"
	"github.com/gosoftroce/rocev2/uverbs/abi"
	"github.com/gosoftroce/rocev2/uverbs/foreign"
	"github.com/gosoftroce/rocev2/verbs"
)

// verbsOpener opens the files of a device.
type verbsOpener struct {
	host *Host
	dev  *uverbs.Device
}

func (o verbsOpener) Open(p Peer) (File, error) {
	f := &verbsFile{host: o.host, dev: o.dev, spaces: map[int]*attachment{}}
	if err := f.Attach(p); err != nil {
		return nil, err
	}
	var err error
	q := o.host.config.Quota
	q.Account = o.host.account(p.UID)
	f.client, err = o.dev.Open(uverbs.Peer{PID: p.PID, UID: p.UID, GID: p.GID, Raw: p.raw}, q)
	if err != nil {
		f.Detach(p)
		return nil, err
	}
	return f, nil
}

// verbsFile is an open file of a device. A command that names memory means that
// of the process that wrote it.
type verbsFile struct {
	host   *Host
	dev    *uverbs.Device
	client *uverbs.Client

	mu     sync.Mutex
	spaces map[int]*attachment
}

// attachment is the memory of a process that has the file open, perhaps by
// several connections.
type attachment struct {
	*foreign.Space
	uses int
}

func (f *verbsFile) Command(p Peer, b []byte) abi.Reply { return f.client.CommandOf(f.caller(p), b) }

// caller is the program that writes a command.
func (f *verbsFile) caller(p Peer) *uverbs.Peer {
	caller := &uverbs.Peer{PID: p.PID, UID: p.UID, GID: p.GID, Raw: p.raw}
	if s, err := f.space(p.PID); err == nil {
		caller.Memory = s
	}
	return caller
}

// Import implements importer.
func (f *verbsFile) Import(p Peer, b []byte) abi.Reply { return f.client.Import(f.caller(p), b) }

// HasPD implements importer.
func (f *verbsFile) HasPD(handle uint32) bool { return f.client.HasPD(handle) }

// Keys implements importer.
func (f *verbsFile) Keys(handle uint32) (lkey, rkey uint32, length uint64, ok bool) {
	return f.client.Keys(handle)
}

func (f *verbsFile) Visible() abi.File { return f.client.Memfd() }
func (f *verbsFile) Bell() abi.File    { return f.client.Bell() }

// Close implements File.
func (f *verbsFile) Close() error {
	err := f.client.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	for pid, s := range f.spaces {
		s.Close()
		delete(f.spaces, pid)
	}
	return err
}

// Attach opens the memory of a process.
func (f *verbsFile) Attach(p Peer) error {
	account := f.host.account(p.UID)
	s, err := foreign.OpenProcess(p.PID, p.UID, account)
	if p.copier != nil && errors.Is(err, os.ErrPermission) {
		life := -1
		if p.life != nil {
			life = int(p.life.Fd())
		}
		s, err = foreign.WithCopier(p.PID, p.UID, account, p.copier, life)
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	a := &attachment{s, 1}
	if old := f.spaces[p.PID]; old != nil { // of what the process was before, perhaps
		a.uses += old.uses
		old.Close()
	}
	f.spaces[p.PID] = a
	return nil
}

// Detach gives up the memory of a process. Regions of it stay as they are.
func (f *verbsFile) Detach(p Peer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.spaces[p.PID]
	if a == nil {
		return
	}
	if a.uses--; a.uses == 0 {
		a.Close()
		delete(f.spaces, p.PID)
	}
}

// ForgetChannel implements forgetter.
func (f *verbsFile) ForgetChannel(handle uint32) { f.client.ForgetChannel(handle) }

func (f *verbsFile) space(pid int) (*foreign.Space, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.spaces[pid]
	if s == nil {
		return nil, fmt.Errorf("%w: process %d has not opened the file", unix.EFAULT, pid)
	}
	return s.Space, nil
}

// Map implements mapper.
func (f *verbsFile) Map(p Peer, fd int, addr, n, off uint64) error {
	s, err := f.space(p.PID)
	if err != nil {
		return err
	}
	return s.Map(fd, int64(off), addr, n)
}

// Unmap implements mapper.
func (f *verbsFile) Unmap(p Peer, addr, n uint64) error {
	s, err := f.space(p.PID)
	if err != nil {
		return err
	}
	s.Unmap(addr, n)
	return nil
}

// Freeze implements freezer.
func (f *verbsFile) Freeze(p Peer, except int) (thaw func(), err error) {
	s, err := f.space(p.PID)
	if err != nil {
		return nil, err
	}
	return s.Freeze(except)
}

// cmOpener opens files of the connection manager.
type cmOpener struct{ host *Host }

func (o cmOpener) Open(p Peer) (File, error) {
	f := &cmFile{host: o.host, uid: p.UID}
	var err error
	f.client, err = ucma.Open(ucma.Peer{PID: p.PID, UID: p.UID, GID: p.GID, Read: f.read, File: f.other, Owns: f.owns}, o.host.cmDevices, ucma.Quota{Account: o.host.account(p.UID)})
	if err != nil {
		return nil, err
	}
	// By its size the library takes a pipe that arrives for one of these,
	// and asks. Where it keeps another size, nobody can pass it on.
	_, _ = unix.FcntlInt(f.Visible().Fd(), unix.F_SETPIPE_SZ, os.Getpagesize())
	return f, nil
}

// cmClient returns the client behind a token, in whose place the program had
// written the number of a file. A process that has not opened the file gets
// none: tokens can be guessed.
func (h *Host) cmClient(pid, token int) *ucma.Client {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.sessions {
		if s.file == nil || s.parting || s.peer.PID != pid || pid == 0 || s.file.token != uint32(token) {
			continue
		}
		if c, ok := s.file.File.(*cmFile); ok {
			return c.client
		}
	}
	return nil
}

// cmFile is an open file of the connection manager.
type cmFile struct {
	host   *Host
	uid    uint32
	client *ucma.Client

	migration sync.Mutex
	caller    int // who migrates an ID

	options sync.Mutex
	option  []byte // the value of the option that is being set
}

// The commands that are looked at here. Of SET_OPTION: where the number of
// bytes of the value stands, and where the library has put the value, which the
// program pointed to.
const (
	cmdMigrateID = 18

	cmdSetOption   = 14
	optionLen      = 28
	optionValue    = 32
	maxOptionValue = 4096
)

func (f *cmFile) Command(p Peer, b []byte) abi.Reply {
	switch {
	case len(b) >= 4 && binary.NativeEndian.Uint32(b) == cmdMigrateID:
		f.migration.Lock()
		defer f.migration.Unlock()
		f.caller = p.PID
		return f.client.CommandOf(p.bindsLow, b)
	case len(b) < optionValue || binary.NativeEndian.Uint32(b) != cmdSetOption:
		return f.client.CommandOf(p.bindsLow, b)
	}
	f.options.Lock()
	defer f.options.Unlock()
	n := binary.NativeEndian.Uint32(b[optionLen:])
	if n > maxOptionValue || uint64(n) != uint64(len(b)-optionValue) {
		return abi.Fail(abi.EINVAL)
	}
	f.option = b[optionValue:]
	r := f.client.CommandOf(p.bindsLow, b[:optionValue])
	f.option = nil
	if r.Errno == 0 {
		r.N = len(b) - int(n)
	}
	return r
}

// other returns the client of a file that the caller has open, too.
func (f *cmFile) other(token int) *ucma.Client { return f.host.cmClient(f.caller, token) }

// owns reports whether a queue pair of a device is in a file that the user of
// this one has open.
func (f *cmFile) owns(dev *verbs.Device, n verbs.QPN) bool {
	if dev == nil {
		return false
	}
	h := f.host
	h.mu.Lock()
	var files []*verbsFile
	for s := range h.sessions {
		if s.file == nil || s.peer.UID != f.uid {
			continue
		}
		if v, ok := s.file.File.(*verbsFile); ok && v.dev.Dev == verbs.HCA(dev) {
			files = append(files, v)
		}
	}
	h.mu.Unlock()
	return slices.ContainsFunc(files, func(v *verbsFile) bool { return v.client.HasQP(n) })
}

// read returns the value of the option: nothing else in a command is a pointer
// to what must be read.
func (f *cmFile) read(_ uint64, b []byte) error {
	if copy(b, f.option) != len(b) {
		return unix.EFAULT
	}
	return nil
}

func (f *cmFile) Visible() abi.File { return f.client.Ready() }
func (f *cmFile) Bell() abi.File    { return nil }
func (f *cmFile) Close() error      { return f.client.Close() }
