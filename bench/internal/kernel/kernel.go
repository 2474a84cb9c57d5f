// Package kernel measures the Linux kernel's Soft-RoCE device rxe beside this
// project's stack in emulated guests: rxe to rxe and ours to ours within one
// guest, and rxe and ours towards the rxe of that guest. Everything is slow
// there, so only the ratios mean something.
package kernel

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
)

// Name is what reports call this peer.
const Name = "kernel rxe"

// Options adjust a run.
type Options struct {
	Repeat int
	Match  func(name string) bool
	Logf   func(format string, args ...any)
}

const (
	messageSize = 64 << 10
	iterations  = 500
)

// parsePerftest reads the line of a message size in the table that the perftest
// programs print; their MB are 2^20 bytes.
func parsePerftest(out string, size int) (float64, error) {
	found := 0.0
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) != 5 || f[0] != strconv.Itoa(size) {
			continue
		}
		mb, err := strconv.ParseFloat(f[3], 64)
		if err != nil {
			return 0, fmt.Errorf("%q is no number of MB/s", f[3])
		}
		found = mb * (1 << 20) * 8 / 1e9
	}
	if found <= 0 {
		return 0, fmt.Errorf("no line of results in %q", tail(out))
	}
	return found, nil
}

// parseOurs reads the JSON line of this project's own tool.
func parseOurs(out string) (float64, error) {
	var last struct {
		Gbps float64 `json:"gbps"`
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "{") {
			if err := json.Unmarshal([]byte(line), &last); err != nil {
				return 0, err
			}
		}
	}
	if last.Gbps <= 0 {
		return 0, fmt.Errorf("no line of results in %q", tail(out))
	}
	return last.Gbps, nil
}

func tail(s string) string {
	if len(s) > 300 {
		s = s[len(s)-300:]
	}
	return strings.TrimSpace(s)
}

// rowOf makes the row of a place for an operation.
func rowOf(op, name, stack, what string) cell.Row {
	return cell.Row{Cell: cell.Cell{
		Name: "kernel/" + op + "/" + name, Group: "kernel guests", Stack: stack, What: strings.ToUpper(op) + " of 64 KiB, " + what,
		Unit: cell.Gbps, Op: op, Size: messageSize, QPs: 1,
	}}
}
