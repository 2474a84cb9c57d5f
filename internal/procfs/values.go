package procfs

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Counters reads the UDP counters, by the names of /proc/net/snmp: "InErrors",
// "RcvbufErrors" and others. Each is the sum of both IP versions.
func Counters(proc fs.FS) (map[string]uint64, error) {
	data, err := fs.ReadFile(proc, "net/snmp")
	if err != nil {
		return nil, err
	}
	sum := make(map[string]uint64)
	var names []string
	for line := range strings.Lines(string(data)) {
		rest, ok := strings.CutPrefix(line, "Udp:")
		if !ok {
			continue
		}
		f := strings.Fields(rest)
		if names == nil {
			names = f
			continue
		}
		for i := range min(len(f), len(names)) {
			n, _ := strconv.ParseUint(f[i], 10, 64)
			sum[names[i]] += n
		}
		names = nil
	}
	data, err = fs.ReadFile(proc, "net/snmp6")
	if err != nil {
		return sum, nil // IPv6 may be off
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if name, ok := strings.CutPrefix(line, "Udp6"); ok && len(f) == 2 {
			n, _ := strconv.ParseUint(f[1], 10, 64)
			sum[strings.Fields(name)[0]] += n
		}
	}
	return sum, nil
}

// Sysctl reads a setting by its name, as in "net.core.rmem_max". An interface
// whose name has dots is written with slashes, as sysctl(8) has it.
func Sysctl(proc fs.FS, name string) (string, bool) {
	if !strings.Contains(name, "/") {
		name = strings.ReplaceAll(name, ".", "/")
	}
	b, err := fs.ReadFile(proc, path.Join("sys", name))
	if err != nil {
		return "", false
	}
	return strings.TrimSpace(string(b)), true
}

// SysctlInt is Sysctl for a number.
func SysctlInt(proc fs.FS, name string) (int, bool) {
	s, ok := Sysctl(proc, name)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// Field reads a value of a file of lines "name: value", as /proc/meminfo and
// /proc/self/status are.
func Field(proc fs.FS, file, name string) (string, bool) {
	data, err := fs.ReadFile(proc, file)
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v), true
		}
	}
	return "", false
}
