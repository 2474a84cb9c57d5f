//go:build linux && cgo

package main

import (
	"bytes"
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
	f := &findings{device: n.name, file: os.Getenv(strict.EnvReport)}
	n.config.Found = func(found verbs.Finding) { f.add(found) }
	return f
}

// findings are what was found on a device. They go to the file of a report if
// there is one, and to standard error if not.
type findings struct {
	device, file string
}

// begin says that there is a device in strict mode.
func (f *findings) begin() {
	if f != nil && f.file != "" {
		f.append(strict.Finding{})
	}
}

// add tells of the first finding of a rule. It is called with locks held.
func (f *findings) add(found verbs.Finding) {
	if f.file == "" {
		say("strict: " + found.String())
		return
	}
	f.append(strict.Finding(found))
}

// tell tells how often all was found, at the end of a device.
func (f *findings) tell(dev *verbs.Device) {
	if f == nil || f.file == "" {
		return
	}
	for _, found := range dev.Findings() {
		f.append(strict.Finding(found))
	}
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
