package main

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// preloadable returns an error that says why the dynamic linker preloads
// nothing into a program.
func preloadable(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if who := changesTo(st); who != "" {
		return fmt.Errorf("it is %s, so the dynamic linker takes no library from outside: copy it without that bit, or name the library in /etc/ld.so.preload", who)
	}
	if os.Geteuid() != 0 {
		if n, err := unix.Getxattr(path, "security.capability", nil); err == nil && n > 0 {
			return errors.New("it has file capabilities, so the dynamic linker takes no library from outside: copy it without them, or name the library in /etc/ld.so.preload")
		}
	}
	f, err := elf.Open(path)
	if err != nil {
		return interpreted(path)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return nil
		}
	}
	return errors.New("it is a static program, which loads no library: link it dynamically with libibverbs")
}

// changesTo says which other user or group a program runs as, "" if none. Root
// becomes another user so, too (execve(2); AT_SECURE of getauxval(3)).
func changesTo(st os.FileInfo) string {
	owner, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	const groupRuns = 0o010 // without it the bit has another meaning
	mode := st.Mode()
	switch {
	case mode&os.ModeSetuid != 0 && int(owner.Uid) != os.Getuid():
		return fmt.Sprintf("setuid to user %d", owner.Uid)
	case mode&os.ModeSetgid != 0 && mode&groupRuns != 0 && int(owner.Gid) != os.Getgid():
		return fmt.Sprintf("setgid to group %d", owner.Gid)
	}
	return ""
}

// interpreted looks at the interpreter of a script.
func interpreted(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return nil // who may run it need not be able to read it
	}
	defer f.Close()
	line, _ := bufio.NewReaderSize(f, 256).ReadSlice('\n')
	rest, ok := strings.CutPrefix(string(line), "#!")
	fields := strings.Fields(rest)
	if !ok || len(fields) == 0 || fields[0] == path {
		return nil
	}
	if e, err := elf.Open(fields[0]); err == nil {
		e.Close()
		if err := preloadable(fields[0]); err != nil {
			return fmt.Errorf("its interpreter %s: %w", fields[0], err)
		}
	}
	return nil
}
