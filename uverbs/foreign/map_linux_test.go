package foreign

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/uverbs/quota"
)

// shapes returns the parts of a region: their lengths in pages, and whether
// they are mapped.
func shapes(r *Region) string {
	s, start := "", uint64(0)
	for _, p := range r.parts {
		kind := "copied"
		if p.shared != nil {
			kind = "mapped"
		}
		s += fmt.Sprintf("%d %s ", (p.end-start)/pageSize, kind)
		start = p.end
	}
	return s
}

// TestMapped: a region of memory that is shared is the memory itself; one that
// has both kinds works piece by piece.
func TestMapped(t *testing.T) {
	t.Parallel()
	f := memfd(t, 16, unix.F_SEAL_SHRINK)
	c := start(t, 64, f)
	s := c.space()
	c.do("share 3 4 10 2")
	c.do("share 3 0 14 4")
	c.must(s.Map(int(f.Fd()), 4*int64(pageSize), c.addr+10*pageSize, 2*pageSize))
	c.must(s.Map(int(f.Fd()), 0, c.addr+14*pageSize, 4*pageSize))
	one := c.region(s, 14*pageSize+100, 3*pageSize)
	if len(one.Bytes()) != int(3*pageSize) {
		t.Fatalf("%d local bytes", len(one.Bytes()))
	}
	all := c.region(s, 0, 20*pageSize)
	if got, want := shapes(all), "10 copied 2 mapped 2 copied 4 mapped 2 copied "; got != want {
		t.Errorf("parts %q, want %q", got, want)
	}
	if all.Bytes() != nil || all.Mapped() {
		t.Error("a region that is not mapped has local bytes")
	}
	b := make([]byte, 18*pageSize)
	for i := range b {
		b[i] = byte(i * 7)
	}
	sum := 0
	for _, x := range b {
		sum += int(x)
	}
	c.must(all.CopyIn(pageSize+5, b))
	if got := c.say("sum %d %d", pageSize+5, len(b)); got != fmt.Sprint(sum) {
		t.Errorf("the process sees the sum %s, want %d", got, sum)
	}
	got := make([]byte, len(b))
	c.must(all.CopyOut(got, pageSize+5))
	if !bytes.Equal(got, b) {
		t.Error("read something else than was written")
	}
	clear(b)
	c.must(all.CopyInV(pageSize+5, [][]byte{b[:1], b[1:60000], b[60000:]}))
	if got := c.say("sum %d %d", pageSize+5, len(b)); got != "0" {
		t.Errorf("the process sees the sum %s, want 0", got)
	}
	c.do("fill %d 10 1", 14*pageSize+100)
	if one.Bytes()[0] != 1 {
		t.Error("what the process writes is not in the mapping")
	}
}

// TestUnmapped: regions keep what they were made of; new ones are not made of
// what was taken back, and the last one gives the mapping back.
func TestUnmapped(t *testing.T) {
	t.Parallel()
	f := memfd(t, 16, unix.F_SEAL_SHRINK)
	c := start(t, 64, f)
	s := c.space()
	c.do("share 3 0 0 16")
	c.must(s.Map(int(f.Fd()), 0, c.addr, 16*pageSize))
	mr, err := s.Region(c.addr, 16*pageSize, true)
	c.must(err)
	old := mr.(*Region)
	m := old.parts[0].m
	s.Unmap(c.addr+4*pageSize, pageSize)
	s.Unmap(c.addr+6*pageSize+1, 1)
	if got, want := shapes(c.region(s, 0, 16*pageSize)), "4 mapped 1 copied 1 mapped 1 copied 9 mapped "; got != want {
		t.Errorf("parts %q, want %q", got, want)
	}
	c.must(s.Map(int(f.Fd()), 0, c.addr+3*pageSize, 5*pageSize)) // replaces
	if got, want := shapes(c.region(s, 0, 16*pageSize)), "3 mapped 5 mapped 8 mapped "; got != want {
		t.Errorf("parts %q, want %q", got, want)
	}
	if s.bytes != 16*pageSize {
		t.Errorf("%d bytes are counted", s.bytes)
	}
	s.Unmap(0, ^uint64(0))
	if len(s.mapped) != 0 || s.bytes != 0 {
		t.Errorf("left: %d ranges of %d bytes", len(s.mapped), s.bytes)
	}
	copy(old.Bytes(), "still there")
	got := make([]byte, 11)
	c.must(c.region(s, 0, 100).CopyOut(got, 0))
	if string(got) != "still there" {
		t.Errorf("the process has %q", got)
	}
	if m.users.Load() == 0 {
		t.Error("the mapping of a region has gone")
	}
	c.must(old.Close())
}

// TestMapRefuses what would end this process, sooner or later.
func TestMapRefuses(t *testing.T) {
	t.Parallel()
	sealed, loose := memfd(t, 4, unix.F_SEAL_SHRINK), memfd(t, 4, unix.F_SEAL_GROW)
	frozen := memfd(t, 4, unix.F_SEAL_SHRINK|unix.F_SEAL_WRITE)
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	readOnly, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", sealed.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	c := start(t, 8, sealed)
	s := c.space()
	p := int64(pageSize)
	for _, x := range []struct {
		why     string
		f       *os.File
		off     int64
		addr, n uint64
	}{
		{"not sealed", loose, 0, c.addr, pageSize},
		{"sealed against writing", frozen, 0, c.addr, pageSize},
		{"open for reading", readOnly, 0, c.addr, pageSize},
		{"a file", file, 0, c.addr, pageSize},
		{"behind the end", sealed, 4 * p, c.addr, pageSize},
		{"over the end", sealed, 3 * p, c.addr, 2 * pageSize},
		{"much over the end", sealed, p, c.addr, ^uint64(0) - pageSize + 1},
		{"before the beginning", sealed, -p, c.addr, pageSize},
		{"part of a page", sealed, 1, c.addr, pageSize},
		{"part of a page", sealed, 0, c.addr + 1, pageSize},
		{"part of a page", sealed, 0, c.addr, 1},
		{"nothing", sealed, 0, c.addr, 0},
		{"behind all addresses", sealed, 0, ^uint64(0) - pageSize + 1, 2 * pageSize},
	} {
		if err := s.Map(int(x.f.Fd()), x.off, x.addr, x.n); err == nil {
			t.Errorf("%s: mapped", x.why)
		}
	}
	if err := s.Map(-1, 0, c.addr, pageSize); !errors.Is(err, unix.EINVAL) {
		t.Errorf("no descriptor: %v", err)
	}
	// What a seal forbids stays forbidden.
	c.must(s.Map(int(sealed.Fd()), 0, c.addr, pageSize))
	r := c.region(s, 0, pageSize)
	if got := c.say("truncate 3 0"); got == "ok" {
		t.Error("the process has cut off what is mapped")
	}
	if _, err := unix.FcntlInt(sealed.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err == nil {
		t.Error("sealed against writing while it is mapped for writing")
	}
	hole := unix.Fallocate(int(sealed.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, p)
	if err := r.CopyIn(0, []byte{1}); err != nil || hole != nil {
		t.Errorf("a page that was taken away: %v, %v", err, hole)
	}
}

// TestMapLimits: nobody takes all mappings of this process.
func TestMapLimits(t *testing.T) {
	t.Parallel()
	f := memfd(t, 4*maxMapped, unix.F_SEAL_SHRINK)
	c := start(t, 1)
	s := c.space()
	const base = 1 << 32
	c.must(s.Map(int(f.Fd()), 0, base, 4*maxMapped*pageSize))
	for i := range uint64(2 * maxMapped) {
		s.Unmap(base+2*i*pageSize, pageSize)
	}
	if len(s.mapped) > maxMapped {
		t.Errorf("%d ranges of what is left of one", len(s.mapped))
	}
	s.Unmap(0, ^uint64(0))
	var err error
	for i := uint64(0); err == nil && i <= maxMapped; i++ {
		err = s.Map(int(f.Fd()), 0, base+2*i*pageSize, pageSize)
	}
	if !errors.Is(err, unix.ENOMEM) || len(s.mapped) != maxMapped {
		t.Errorf("%d ranges: %v", len(s.mapped), err)
	}
}

// TestFaultsAreFaults: what the kernel says is no fault of its own kind.
func TestFaultsAreFaults(t *testing.T) {
	t.Parallel()
	for _, err := range []error{whole(3, 4, nil), whole(0, 4, unix.EFAULT), whole(-1, 4, unix.ESRCH)} {
		if err != ib.FaultMemory {
			t.Error(err)
		}
	}
}

// TestMappedQuota: what a user has mapped is counted for as long as it is, in
// all his processes; and what regions keep of it, too.
func TestMappedQuota(t *testing.T) {
	t.Parallel()
	user := quota.New("user 7", nil, quota.Limits{quota.MappedBytes: 8 * int64(pageSize), quota.Mappings: 3})
	f := memfd(t, 16, unix.F_SEAL_SHRINK)
	fd := int(f.Fd())
	a, b := start(t, 64, f), start(t, 64, f)
	sa, sb := a.space(), b.space()
	sa.account, sb.account = user, user
	wantFull := func(err error) {
		t.Helper()
		if !errors.Is(err, unix.ENOMEM) || !errors.Is(err, quota.ErrFull) {
			t.Errorf("got %v", err)
		}
	}
	a.do("share 3 0 0 6")
	a.must(sa.Map(fd, 0, a.addr, 6*pageSize))
	r := a.region(sa, 0, 6*pageSize)
	sa.Unmap(a.addr, 6*pageSize) // the region has it
	wantFull(sb.Map(fd, 0, b.addr, 3*pageSize))
	b.must(sb.Map(fd, 0, b.addr, 2*pageSize))
	a.must(r.Close())
	for i := range uint64(2) {
		b.must(sb.Map(fd, 0, b.addr+(4+i)*pageSize, pageSize))
	}
	wantFull(sa.Map(fd, 0, a.addr, pageSize)) // a fourth mapping
	sb.Unmap(0, ^uint64(0))
	if !user.Empty() {
		t.Errorf("%d bytes are left", user.Have(quota.MappedBytes))
	}
}
