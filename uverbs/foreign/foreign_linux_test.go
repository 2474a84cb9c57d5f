package foreign

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/gosoftroce/rocev2/ib"
	"golang.org/x/sys/unix"
)

// TestMain is also the other process: it does what lines on its standard input
// say, and answers each with a line.
func TestMain(m *testing.M) {
	if os.Getenv("FOREIGN_CHILD") == "" {
		os.Exit(m.Run())
	}
	unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0) // where there is Yama
	c := commands{}
	if at, err := strconv.ParseUint(os.Getenv("FOREIGN_AT"), 10, 64); err == nil { // what "become" has made
		there := uintptr(at)
		p, err := unix.MmapPtr(-1, 0, *(*unsafe.Pointer)(unsafe.Pointer(&there)), 64*uintptr(pageSize), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED_NOREPLACE)
		if err != nil {
			fmt.Println("error:", err)
		}
		c.mem = unsafe.Slice((*byte)(p), 64*pageSize)
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		fmt.Println(c.do(strings.Fields(in.Text())))
	}
}

// commands are those of the other process. It has memory in one piece.
type commands struct{ mem []byte }

func (c *commands) do(f []string) string {
	n := func(i int) int {
		v, _ := strconv.ParseUint(f[i], 0, 64)
		return int(v)
	}
	prot := map[string]int{"none": unix.PROT_NONE, "r": unix.PROT_READ, "rw": unix.PROT_READ | unix.PROT_WRITE}
	var err error
	switch f[0] {
	case "alloc": // pages
		c.mem, _ = unix.Mmap(-1, 0, n(1)*int(pageSize), prot["rw"], unix.MAP_PRIVATE|unix.MAP_ANON)
		return fmt.Sprint(uintptr(unsafe.Pointer(&c.mem[0])))
	case "share": // descriptor, its page, at page, pages
		_, err = mmapAt(&c.mem[n(3)*int(pageSize)], n(4), n(1), n(2))
	case "fill": // at, bytes, with
		copy(c.mem[n(1):], bytes.Repeat([]byte{byte(n(3))}, n(2)))
	case "sum": // at, bytes
		sum := 0
		for _, b := range c.mem[n(1):][:n(2)] {
			sum += int(b)
		}
		return fmt.Sprint(sum)
	case "protect": // page, pages, how
		err = unix.Mprotect(c.mem[n(1)*int(pageSize):][:n(2)*int(pageSize)], prot[f[3]])
	case "unmap": // page, pages
		p := unsafe.Pointer(&c.mem[n(1)*int(pageSize)])
		err = unix.MunmapPtr(p, uintptr(n(2))*uintptr(pageSize))
	case "truncate": // descriptor, pages
		err = unix.Ftruncate(n(1), int64(n(2))*int64(pageSize))
	case "become": // what has memory at the same address
		os.Setenv("FOREIGN_AT", f[1])
		fmt.Println("ok")
		return "error: " + syscall.Exec("/proc/self/exe", os.Args, os.Environ()).Error()
	case "spin": // threads
		return c.spin(n(1))
	case "signals": // where they are counted
		got := make(chan os.Signal, 100)
		signal.Notify(got, unix.SIGUSR1)
		go func() {
			for range got {
				c.mem[n(1)]++
			}
		}()
	case "exec":
		fmt.Println("ok")
		return "error: " + syscall.Exec("/bin/cat", []string{"cat"}, nil).Error()
	}
	if err != nil {
		return "error: " + err.Error()
	}
	return "ok"
}

// mmapAt maps pages of a descriptor, shared, over memory that is mapped.
func mmapAt(at *byte, pages, fd, page int) (unsafe.Pointer, error) {
	return unix.MmapPtr(fd, int64(page)*int64(pageSize), unsafe.Pointer(at), uintptr(pages)*uintptr(pageSize),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
}

// child is another process.
type child struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.Writer
	out  *bufio.Reader
	addr uint64 // of its memory
}

// start starts a process with so many pages of memory and some descriptors,
// from 3 on.
func start(t testing.TB, pages int, files ...*os.File) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command("/proc/self/exe")}
	c.cmd.Env = append(os.Environ(), "FOREIGN_CHILD=1")
	c.cmd.ExtraFiles, c.cmd.Stderr = files, os.Stderr
	in, err := c.cmd.StdinPipe()
	c.must(err)
	out, err := c.cmd.StdoutPipe()
	c.must(err)
	c.in, c.out = in, bufio.NewReader(out)
	c.must(c.cmd.Start())
	t.Cleanup(func() {
		in.Close()
		c.cmd.Wait()
	})
	c.addr, err = strconv.ParseUint(c.say("alloc %d", pages), 10, 64)
	c.must(err)
	return c
}

func (c *child) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// say gives the process a command and returns its answer.
func (c *child) say(format string, args ...any) string {
	c.t.Helper()
	_, err := fmt.Fprintf(c.in, format+"\n", args...)
	c.must(err)
	line, err := c.out.ReadString('\n')
	c.must(err)
	return strings.TrimSpace(line)
}

// do is say of what must succeed.
func (c *child) do(format string, args ...any) {
	c.t.Helper()
	if got := c.say(format, args...); got != "ok" {
		c.t.Fatalf(format+": %s", append(args, got)...)
	}
}

func (c *child) space() *Space {
	c.t.Helper()
	s, err := OpenProcess(c.cmd.Process.Pid, uint32(os.Getuid()), nil)
	if errors.Is(err, os.ErrPermission) {
		c.t.Skipf("%v", err)
	}
	c.must(err)
	c.t.Cleanup(func() { s.Close() })
	return s
}

func (c *child) region(s *Space, off, n uint64) *Region {
	c.t.Helper()
	m, err := s.Region(c.addr+off, n, true)
	c.must(err)
	r := m.(*Region)
	c.t.Cleanup(func() { r.Close() })
	return r
}

// memfd makes a memfd of pages with seals.
func memfd(t testing.TB, pages, seals int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("shared", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "shared")
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(int64(pages) * int64(pageSize)); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return f
}

// ways runs a test by process_vm_readv, without, and with a user that is not
// trusted.
func ways(t *testing.T, f func(t *testing.T, c *child, s *Space)) {
	for _, way := range []string{"direct", "mem", "courier"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			c := start(t, 64)
			s := c.space()
			s.direct, s.trusted = way == "direct", way != "courier"
			f(t, c, s)
		})
	}
}

func TestCopy(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, c *child, s *Space) {
		r := c.region(s, 100, 40*pageSize)
		for _, n := range []int{0, 1, 8, 4096, 9000, 100000} {
			b := bytes.Repeat([]byte{3}, n)
			c.must(r.CopyIn(17, b))
			if got, want := c.say("sum %d %d", 117, n), fmt.Sprint(3*n); got != want {
				t.Errorf("%d bytes: the process sees the sum %s, want %s", n, got, want)
			}
			c.do("fill %d %d 5", 117, n)
			c.must(r.CopyOut(b, 17))
			if !bytes.Equal(b, bytes.Repeat([]byte{5}, n)) {
				t.Errorf("%d bytes: read something else than the process wrote", n)
			}
		}
		for _, n := range []int{1, 3, 64, 200} { // buffers
			var bufs [][]byte
			want := 0
			for i := range n {
				bufs = append(bufs, bytes.Repeat([]byte{byte(i)}, 500))
				want += 500 * int(byte(i))
			}
			c.must(r.CopyInV(1, bufs))
			if got := c.say("sum %d %d", 101, 500*n); got != fmt.Sprint(want) {
				t.Errorf("%d buffers: the process sees the sum %s, want %d", n, got, want)
			}
		}
		for _, err := range []error{r.CopyIn(40*pageSize, []byte{1}), r.CopyOut(make([]byte, 2), 40*pageSize-1),
			r.CopyInV(40*pageSize-1, [][]byte{{1}, {2}})} {
			if err != ib.FaultOutOfBounds {
				t.Errorf("beyond the end: %v", err)
			}
		}
	})
}

// TestVanish: memory that goes is a fault for who uses it, whether it is
// unmapped, or the process is killed, or becomes another program.
func TestVanish(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, c *child, s *Space) {
		r := c.region(s, 0, 64*pageSize)
		faults := func(why string, off uint64) {
			t.Helper()
			for _, n := range []int{8, 5000, 100000} {
				b := make([]byte, n)
				for what, err := range map[string]error{"read": r.CopyOut(b, off), "write": r.CopyIn(off, b), "vector": r.CopyInV(off, [][]byte{b, b})} {
					if err != ib.FaultMemory {
						t.Errorf("%s: %s of %d bytes: %v", why, what, n, err)
					}
				}
			}
			if _, err := r.FetchAdd64(off, 1); err != ib.FaultMemory {
				t.Errorf("%s: atomic: %v", why, err)
			}
		}
		c.do("unmap 10 1")
		faults("unmapped", 10*pageSize)
		if err := r.CopyOut(make([]byte, 100), 11*pageSize); err != nil {
			t.Errorf("beside what was unmapped: %v", err)
		}
		c.must(c.cmd.Process.Kill())
		c.cmd.Wait()
		faults("killed", 0)
		if s.Alive() {
			t.Error("a killed process is alive")
		}
		if _, err := s.Region(c.addr, 8, true); !errors.Is(err, unix.EFAULT) {
			t.Errorf("a region of a killed process: %v", err)
		}
		if _, err := OpenProcess(c.cmd.Process.Pid, uint32(os.Getuid()), nil); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("opened a killed process: %v", err)
		}
	})
}

// TestExec: a program that the process becomes is not touched through
// /proc/PID/mem, and is a space of its own.
func TestExec(t *testing.T) {
	t.Parallel()
	c := start(t, 64)
	s := c.space()
	s.direct = false
	r := c.region(s, 0, 64*pageSize)
	c.do("exec")
	_, err := fmt.Fprintln(c.in, "hello")
	c.must(err)
	if line, _ := c.out.ReadString('\n'); line != "hello\n" { // cat is there
		t.Fatalf("the process says %q", line)
	}
	if err := r.CopyIn(0, make([]byte, 100)); err != ib.FaultMemory {
		t.Errorf("write: %v", err)
	}
	if s.Alive() {
		t.Error("the address space is still there")
	}
	if again := c.space(); again == s {
		t.Error("the new program has the space of the old one")
	}
}

// TestExecAtTheSameAddress: a program that the process becomes is not touched
// where it has memory at the address of a region, either.
func TestExecAtTheSameAddress(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, c *child, s *Space) {
		r := c.region(s, 0, 64*pageSize)
		c.do("become %d", c.addr)
		if got := c.say("sum 0 %d", 64*pageSize); got != "0" {
			t.Skipf("the program that the process became has something at the address (run it again): %s", got)
		}
		for _, n := range []int{100, 9000, 100000} {
			b := bytes.Repeat([]byte{1}, n)
			for what, err := range map[string]error{"read": r.CopyOut(make([]byte, n), 0), "write": r.CopyIn(0, b), "vector": r.CopyInV(0, [][]byte{b, b})} {
				if err != ib.FaultMemory {
					t.Errorf("%s of %d bytes: %v", what, n, err)
				}
			}
		}
		if got := c.say("sum 0 %d", 64*pageSize); got != "0" {
			t.Errorf("another program has the sum %s; want 0", got)
		}
	})
}

// TestRegister: what is not there, or has not the rights, is EFAULT.
func TestRegister(t *testing.T) {
	t.Parallel()
	c := start(t, 64)
	s := c.space()
	c.do("unmap 30 1")
	c.do("protect 40 1 r")
	c.do("protect 50 1 none")
	for _, x := range []struct {
		first, n    uint64 // bytes
		read, write bool
	}{
		{0, 30 * pageSize, true, true},
		{0, 30*pageSize + 1, false, false},
		{30*pageSize - 1, 2, false, false},
		{31*pageSize - 1, 2, false, false},
		{31 * pageSize, 0, true, true},
		{30 * pageSize, 0, true, true},
		{31 * pageSize, 9 * pageSize, true, true},
		{31 * pageSize, 9*pageSize + 1, true, false},
		{41*pageSize - 1, 2, true, false},
		{41 * pageSize, 9*pageSize + 1, false, false},
		{51 * pageSize, 13 * pageSize, true, true},
	} {
		for write, want := range map[bool]bool{false: x.read, true: x.write} {
			at := c.addr + x.first
			if err := s.checkByReading(new(filesystems), at, at+x.n, write); (err == nil) != want || err != nil && !errors.Is(err, unix.EFAULT) {
				t.Errorf("%d bytes at %d, write %v, by reading: %v", x.n, x.first, write, err)
			}
			r, err := s.Region(at, x.n, write)
			if (err == nil) != want || err != nil && !errors.Is(err, unix.EFAULT) {
				t.Errorf("%d bytes at %d, write %v: %v", x.n, x.first, write, err)
			}
			if err == nil {
				r.(*Region).Close()
			}
		}
	}
	for _, x := range [][2]uint64{{^uint64(0), 2}, {1 << 63, 1}, {0, ^uint64(0)}, {c.addr, 1 << 62}, {0, 1}} {
		if _, err := s.Region(x[0], x[1], false); !errors.Is(err, unix.EFAULT) {
			t.Errorf("%#x bytes at %#x: %v", x[1], x[0], err)
		}
	}
}

// TestOpenRefuses: no process, and a process of somebody else.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	c.space()
	if _, err := OpenProcess(c.cmd.Process.Pid, uint32(os.Getuid())+1, nil); !errors.Is(err, os.ErrPermission) {
		t.Errorf("another user's: %v", err)
	}
	for _, pid := range []int{0, -1, 1 << 22} {
		if s, err := OpenProcess(pid, uint32(os.Getuid()), nil); err == nil {
			t.Errorf("opened process %d", pid)
			s.Close()
		}
	}
}

// TestAtomics: words that are not mapped are changed one after the other, also
// through several regions.
func TestAtomics(t *testing.T) {
	t.Parallel()
	f := memfd(t, 1, unix.F_SEAL_SHRINK)
	for _, mapped := range []bool{false, true} {
		c := start(t, 4, f)
		s := c.space()
		if mapped {
			c.do("share 3 0 0 1")
			c.must(s.Map(int(f.Fd()), 0, c.addr, pageSize))
		}
		a, b := c.region(s, 0, pageSize), c.region(s, 8, 100)
		if a.Mapped() != mapped {
			t.Errorf("mapped: %v", a.Mapped())
		}
		var wg sync.WaitGroup
		for _, add := range []func() (uint64, error){func() (uint64, error) { return a.FetchAdd64(16, 1) }, func() (uint64, error) { return b.FetchAdd64(8, 1) }} {
			wg.Go(func() {
				for range 500 {
					if _, err := add(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if v, err := a.Load64(16); v != 1000 || err != nil {
			t.Errorf("mapped %v: %d, %v", mapped, v, err)
		}
		if old, err := b.CompareSwap64(8, 1, 2); old != 1000 || err != nil {
			t.Errorf("mapped %v: %d, %v", mapped, old, err)
		}
		if old, err := b.CompareSwap64(8, 1000, 5); old != 1000 || err != nil {
			t.Errorf("mapped %v: %d, %v", mapped, old, err)
		}
		c.must(a.Store64(24, 7))
		if got := c.say("sum 16 16"); got != "12" {
			t.Errorf("mapped %v: the process sees the sum %s", mapped, got)
		}
		if _, err := a.Load64(12); err != ib.FaultMisaligned {
			t.Errorf("mapped %v: misaligned: %v", mapped, err)
		}
		if _, err := b.Load64(96); err != ib.FaultOutOfBounds {
			t.Errorf("mapped %v: beyond the end: %v", mapped, err)
		}
	}
}

// A region that is made while the space is given up is whole, or there is none:
// it never has files that are closed, whose numbers others get.
func TestRegionBesideClose(t *testing.T) {
	c := start(t, 64)
	c.space().Close() // or it skips
	f := memfd(t, 1, unix.F_SEAL_SHRINK)
	for range 2000 {
		s, err := open(c.cmd.Process.Pid, uint32(os.Getuid()))
		c.must(err)
		var wg sync.WaitGroup
		wg.Go(func() { s.Close() })
		m, err := s.Region(c.addr, 64, false)
		_ = s.Map(int(f.Fd()), 0, c.addr, pageSize)
		wg.Wait()
		if err == nil {
			if err := m.CopyOut(make([]byte, 8), 0); err != nil {
				t.Fatalf("the region of a space that is closed beside: %v", err)
			}
			c.must(m.(*Region).Close())
		}
		if _, err := s.Region(c.addr, 64, false); !errors.Is(err, unix.EFAULT) || s.users != 0 {
			t.Fatalf("after the end: %v, %d users", err, s.users)
		}
	}
}
