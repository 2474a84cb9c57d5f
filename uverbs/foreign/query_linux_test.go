package foreign

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestQuery: what the kernel says of each mapping of a process when it is asked
// is what it says in /proc.
func TestQuery(t *testing.T) {
	t.Parallel()
	s := start(t, 64).space()
	text, err := readAll(s.maps)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		want, ok := parseMap(line)
		if strings.Contains(line, "[vsyscall]") { // it belongs to no process
			continue
		}
		got, can, err := s.query(want.end - 1)
		if !can {
			t.Skip("the kernel is older than Linux 6.11")
		}
		if !ok || err != nil || got != want {
			t.Errorf("%+v, %v; want %s", got, err, line)
		}
	}
	if _, _, err := s.query(1); !errors.Is(err, unix.EFAULT) {
		t.Errorf("where nothing is: %v", err)
	}
}
