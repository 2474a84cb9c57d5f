package foreign

import (
	"errors"
	"os"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

// TestStuck: a copy that does not end is given up, and its user gets no space
// for a while.
func TestStuck(t *testing.T) {
	c := start(t, 64)
	c.space() // or it skips
	s, err := OpenProcess(c.cmd.Process.Pid, uint32(os.Getuid()))
	c.must(err)
	s.trusted, s.direct = false, false
	never := make(chan bool)
	defer close(never)
	s.carry = func([]byte, job) bool { return <-never }
	m, err := s.Region(c.addr, 64*pageSize, true)
	c.must(err)
	for range 2 {
		for what, err := range map[string]error{"read": m.CopyOut(make([]byte, 8), 0), "write": m.CopyIn(0, make([]byte, 100000)), "atomic": m.Store64(0, 1)} {
			if err != ib.FaultMemory {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	if !s.Stuck() {
		t.Error("the space is not stuck")
	}
	c.must(m.(*Region).Close())
	c.must(s.Close())
	if _, err := OpenProcess(c.cmd.Process.Pid, uint32(os.Getuid())); !errors.Is(err, os.ErrPermission) {
		t.Errorf("opened again: %v", err)
	}
	refused.mu.Lock()
	delete(refused.until, uint32(os.Getuid()))
	refused.mu.Unlock()
}
