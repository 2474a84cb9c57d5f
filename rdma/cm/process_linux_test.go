package cm_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// resident returns the memory of a process in bytes.
func resident(b *testing.B, pid int) int {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	must(b, err)
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	must(b, err)
	return pages * os.Getpagesize()
}

// processorTime returns what a process has used of the processors.
func processorTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(b, err)
	const ticks = 100 // a second
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	user, err := strconv.Atoi(fields[11])
	must(b, err)
	system, err := strconv.Atoi(fields[12])
	must(b, err)
	return time.Duration(user+system) * time.Second / ticks
}
