//go:build linux

package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Namespaces lists the labs on this machine, also those of other processes.
func Namespaces() []string {
	dirs, _ := filepath.Glob(filepath.Join(nsDir, nsPrefix+"*"))
	names := make([]string, len(dirs))
	for i, d := range dirs {
		names[i] = filepath.Base(d)
	}
	return names
}

// Connect returns a running lab of another process, by the name of its
// namespace, "" for the only one. It must not be closed; its guests know
// nothing about their images and consoles.
func Connect(name string) (*Lab, error) {
	if name == "" {
		names := Namespaces()
		if len(names) != 1 {
			return nil, fmt.Errorf("%d labs are running: [%s]", len(names), strings.Join(names, " "))
		}
		name = names[0]
	}
	if _, err := os.Stat(filepath.Join(nsDir, name)); err != nil {
		return nil, err
	}
	l := &Lab{ns: &namespace{name}}
	l.Host = &Host{ns: l.ns}
	for i, line := range Lines {
		l.Guests = append(l.Guests, newGuest(l.ns, i, Image{Line: line}))
	}
	return l, nil
}
