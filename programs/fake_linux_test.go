package programs

import (
	"encoding/binary"
	"os"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/uverbs/abi"
	"github.com/gosoftroce/rocev2/uverbs/foreign"
)

// fakeFile is a device file whose commands suit the cases of testdata/check.c.
type fakeFile struct {
	t    *testing.T
	host *Host

	visible, bell *os.File
	write         *os.File // of the pipe that is visible

	mu        sync.Mutex
	forgotten uint32
	channels  []*os.File // their ends for writing
	shared    []byte     // of the last MAP
	closed    chan struct{}
}

// fakeOpener opens them.
type fakeOpener struct {
	t     *testing.T
	host  *Host
	cm    bool
	opens chan *fakeFile // nil: nobody looks
}

func (o fakeOpener) Open(Peer) (File, error) {
	f := &fakeFile{t: o.t, host: o.host, closed: make(chan struct{})}
	var err error
	if o.cm {
		if f.visible, f.write, err = os.Pipe(); err == nil {
			_, err = unix.FcntlInt(f.visible.Fd(), unix.F_SETPIPE_SZ, os.Getpagesize())
		}
	} else {
		f.visible, f.bell, err = fakeMemory()
	}
	if o.opens != nil && err == nil {
		o.opens <- f
	}
	return f, err
}

func fakeMemory() (memory, bell *os.File, err error) {
	fd, err := unix.MemfdCreate("rocev2-test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, err
	}
	memory = os.NewFile(uintptr(fd), "memory")
	if err := memory.Truncate(0x20000); err != nil {
		return nil, nil, err
	}
	b := binary.NativeEndian.AppendUint32(nil, 0x524f4345)
	if _, err := memory.WriteAt(binary.NativeEndian.AppendUint32(b, 1), 0); err != nil {
		return nil, nil, err
	}
	if fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, nil, err
	}
	return memory, os.NewFile(uintptr(fd), "bell"), nil
}

func (f *fakeFile) Visible() abi.File { return f.visible }

func (f *fakeFile) Bell() abi.File {
	if f.bell == nil {
		return nil
	}
	return f.bell
}

func (f *fakeFile) ForgetChannel(handle uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgotten = handle
}

// Map and Unmap keep what the program shares.
func (f *fakeFile) Map(_ Peer, fd int, _, n, off uint64) (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shared, err = unix.Mmap(fd, int64(off), int(n), unix.PROT_READ, unix.MAP_SHARED)
	return err
}

func (f *fakeFile) Unmap(Peer, uint64, uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shared = nil
	return nil
}

func (f *fakeFile) Freeze(p Peer, except int) (thaw func(), err error) {
	s, err := foreign.OpenProcess(p.PID, p.UID, nil)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Freeze(except)
}

func (f *fakeFile) Close() error {
	close(f.closed)
	for _, file := range append(f.channels, f.visible, f.bell, f.write) {
		if file != nil {
			file.Close()
		}
	}
	return nil
}

func (f *fakeFile) Command(_ Peer, b []byte) abi.Reply {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.write != nil {
		return f.manager(b)
	}
	word := func(i int) uint32 { return binary.NativeEndian.Uint32(b[4*i:]) }
	if len(b) < 16 {
		return abi.Fail(abi.EINVAL)
	}
	switch word(0) {
	case 0:
		return f.pipe(len(b), 8)
	case 9: // whether a region of it is mapped
		if f.shared != nil {
			return abi.Reply{N: 1}
		}
		return abi.Reply{}
	case 17:
		return f.pipe(len(b), 4)
	case 18:
		if word(8) == ^uint32(0) {
			return abi.Fail(abi.EPERM)
		}
		return abi.Reply{N: int(word(8))}
	case 28:
		return abi.Reply{N: 28}
	case 100:
		return abi.Reply{N: len(b), Resp: binary.NativeEndian.AppendUint32(nil, word(4)+1)}
	case 102:
		return abi.Reply{N: int(f.forgotten)}
	case 103:
		var n uint64
		_, err := unix.Read(int(f.bell.Fd()), (*[8]byte)(unsafe.Pointer(&n))[:])
		if err != nil {
			return abi.Fail(abi.EAGAIN)
		}
		return abi.Reply{N: int(n)}
	case 105:
		if f.shared == nil {
			return abi.Reply{N: 300}
		}
		return abi.Reply{N: int(f.shared[word(3)])}
	case 104:
		go f.host.Close()
		for f.host.mu.Lock(); !f.host.closed; f.host.mu.Lock() {
			f.host.mu.Unlock()
			runtime.Gosched()
		}
		f.host.mu.Unlock()
		return abi.Fail(abi.EIO)
	}
	return abi.Fail(abi.EOPNOTSUPP)
}

// pipe answers with the end of a pipe for reading, as a file of events.
func (f *fakeFile) pipe(n, resp int) abi.Reply {
	r, w, err := os.Pipe()
	if err != nil {
		return abi.Fail(abi.EMFILE)
	}
	if resp == 4 {
		_, err = w.WriteString("cookie!!")
	}
	if err != nil {
		return abi.Fail(abi.EIO)
	}
	f.channels = append(f.channels, w)
	b := make([]byte, resp)
	binary.NativeEndian.PutUint32(b, 77)
	return abi.Reply{N: n, Resp: b, Files: []abi.ReplyFile{{File: r, Offset: 0}}}
}

func (f *fakeFile) manager(b []byte) abi.Reply {
	switch binary.NativeEndian.Uint32(b) {
	case 12:
		if f.forgotten == 0 {
			return abi.Fail(abi.EAGAIN)
		}
		return abi.Reply{N: len(b), Resp: binary.NativeEndian.AppendUint32(nil, f.forgotten)}
	case 200:
		f.forgotten = 4711
		if _, err := f.write.Write([]byte{1}); err != nil {
			return abi.Fail(abi.EIO)
		}
		return abi.Reply{N: len(b)}
	}
	return abi.Fail(abi.EOPNOTSUPP)
}

// fakeHost serves the fake device rxe_lo0 and the fake connection manager.
func fakeHost(t *testing.T, config Config, opens chan *fakeFile) *Host {
	t.Helper()
	if config.Dir == "" {
		config.Dir = shortDir(t)
	}
	h, err := Listen(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	a := Attributes{Name: "rxe_lo0", NodeGUID: 0x0011223344556677, Interface: "lo", Active: true, GIDTable: 2,
		GIDs: []GID{{GID: [16]byte{10: 0xff, 0xff, 127, 0, 0, 1}, Type: "RoCE v2"}}}
	if err := h.AddVerbs(a, fakeOpener{t: t, host: h, opens: opens}); err != nil {
		t.Fatal(err)
	}
	if err := h.AddCM(fakeOpener{t: t, host: h, cm: true}); err != nil {
		t.Fatal(err)
	}
	return h
}

// shortDir returns a directory whose path has room for a socket's.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "roce")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// sentFiles are the files of a control message.
func sentFiles(oob []byte) (files []*os.File) {
	for _, f := range takeFiles(oob) {
		files = append(files, os.NewFile(f.Fd(), "received"))
	}
	return files
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
