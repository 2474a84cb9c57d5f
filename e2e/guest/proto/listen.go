package proto

import (
	"fmt"
	"os"
	"strings"
)

// Listening reports whether a TCP socket of the network namespace of process
// pid ("self" for the caller's own) listens on port. It looks rather than
// connects: the servers under test serve exactly one connection.
func Listening(pid string, port int) (bool, error) {
	found := false
	for _, f := range []string{"tcp", "tcp6"} {
		b, err := os.ReadFile("/proc/" + pid + "/net/" + f)
		if os.IsNotExist(err) && f == "tcp6" {
			continue // no IPv6 here
		}
		if err != nil {
			return false, err
		}
		found = found || listens(string(b), port)
	}
	return found, nil
}

// listens reads the kernel's socket table: local address as HEX:PORT in the
// second column, state in the fourth, 0A is LISTEN.
func listens(table string, port int) bool {
	suffix := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) > 3 && f[3] == "0A" && strings.HasSuffix(f[1], suffix) {
			return true
		}
	}
	return false
}
