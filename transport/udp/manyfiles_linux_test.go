package udp

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestManyFiles: where the process may open no more files, what fails says so,
// and what to do. The limit is of a process, so this one starts another.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	const child = "ROCEV2_TEST_MANY_FILES"
	if os.Getenv(child) == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestManyFiles$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	l := open(t, loopback(), Config{})
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = 3
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	_, opened := Open(loopback(), Config{})
	_, sourced := l.OpenSourcePort(61511, true)
	joined := l.JoinGroup(mustAddr("239.255.47.89"))
	for what, err := range map[string]error{"open": opened, "a source port": sourced, "a group": joined} {
		if !errors.Is(err, syscall.EMFILE) || !strings.Contains(err.Error(), "ulimit -n") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
