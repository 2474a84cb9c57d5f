//go:build linux && cgo

package main

import (
	"bytes"
	"maps"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/hca/strict"
	"github.com/gosoftroce/rocev2/verbs"
)

// strictly sets strict mode of a device as the environment says, and otherwise
// as its file does. It returns nil without it.
func (n *node) strictly() *findings {
	for name, value := range map[string]*string{strict.EnvRules: &n.config.Strict, strict.EnvProfile: &n.config.Profile} {
		if v, ok := os.LookupEnv(name); ok {
			*value = v
		}
	}
	if n.config.Strict == "" && n.config.Profile == "" {
		return nil
	}
	f := &findings{device: n.name, file: os.Getenv(strict.EnvReport), before: earlier[n.name]}
	n.config.Found = func(found verbs.Finding) { f.add(found) }
	return f
}

// findings are what was found on a device. They go to the file of a report if
// there is one, and to standard error if not.
type findings struct {
	device, file string
	before       map[string]strict.Finding // when the device was open earlier, by rule
}

// earlier has what was found on devices that were closed: a program may open
// them again. Their lock guards it.
var earlier = map[string]map[string]strict.Finding{}

// since returns a finding together with what was found before.
func (f *findings) since(found strict.Finding) strict.Finding {
	if b, ok := f.before[found.Rule]; ok {
		b.Count += found.Count
		return b
	}
	return found
}

// begin says that there is a device in strict mode.
func (f *findings) begin() {
	if f != nil && f.file != "" {
		f.append(strict.Finding{})
	}
}

// add tells of the first finding of a rule. It is called with locks held.
func (f *findings) add(found verbs.Finding) {
	switch _, known := f.before[found.Rule]; {
	case f.file != "":
		f.append(f.since(strict.Finding(found)))
	case !known:
		say("strict: " + found.String())
	}
}

// tell tells how often all was found, when the program ends.
func (f *findings) tell(dev *verbs.Device) {
	if f == nil || f.file == "" {
		return
	}
	for _, found := range dev.Findings() {
		f.append(f.since(strict.Finding(found)))
	}
}

// end is tell of a device that is closed. The devices are locked.
func (f *findings) end(dev *verbs.Device) {
	if f == nil {
		return
	}
	f.tell(dev)
	all := maps.Clone(f.before)
	if all == nil {
		all = map[string]strict.Finding{}
	}
	for _, found := range dev.Findings() {
		all[found.Rule] = f.since(strict.Finding(found))
	}
	earlier[f.device] = all
}

// append adds a line to the report. What cannot be written is lost: the program
// is not to fail for it.
func (f *findings) append(found strict.Finding) {
	fd, err := unix.Open(f.file, unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	command, _ := os.ReadFile("/proc/self/comm")
	_ = strict.Line{PID: os.Getpid(), Command: string(bytes.TrimSpace(command)), Device: f.device, Finding: found}.Append(rawFile(fd))
}

// rawFile is a file that Go's runtime does not know.
type rawFile int

func (f rawFile) Write(b []byte) (int, error) { return unix.Write(int(f), b) }
