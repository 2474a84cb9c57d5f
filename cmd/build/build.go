// Package build says what a command of this module was built from.
package build

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Info is what Go has noted in a program: what is not known is empty.
type Info struct {
	Module string // the version of this module
	Commit string // with all digits
	Date   string // of the commit (RFC 3339)
	Dirty  bool   // there were changes that the commit lacks
}

// Read returns what Go has noted in this program.
func Read() Info {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return Info{}
	}
	i := Info{Module: b.Main.Version}
	for _, s := range b.Settings {
		switch s.Key {
		case "vcs.revision":
			i.Commit = s.Value
		case "vcs.time":
			i.Date = s.Value
		case "vcs.modified":
			i.Dirty = s.Value == "true"
		}
	}
	return i
}

// Short is the version in a word or a few: for logs and JSON.
func (i Info) Short() string {
	var b strings.Builder
	b.WriteString(i.Module)
	if i.Module == "" {
		b.WriteString("(unknown)")
	}
	if i.Commit != "" {
		b.WriteString(" commit " + i.Commit[:min(len(i.Commit), 12)])
	}
	if i.Dirty {
		b.WriteString(" with local changes")
	}
	return b.String()
}

// Text is what --version of a command prints: the version of the module, the
// commit and its date, Go and the system, and what ICRCs are computed by.
func (i Info) Text(command string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", command, i.Short())
	if i.Date != "" {
		fmt.Fprintf(&b, "date %s\n", i.Date)
	}
	fmt.Fprintf(&b, "%s %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	fmt.Fprintf(&b, "ICRC by %s\n", rocev2.ICRCFeatures())
	return b.String()
}
