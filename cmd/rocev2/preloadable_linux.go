package main

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// preloadable returns an error that says why the dynamic linker preloads
// nothing into a program.
func preloadable(program string) error {
	st, err := os.Stat(program)
	if err != nil {
		return err
	}
	if who := changesTo(st); who != "" {
		return fmt.Errorf("it is %s, so the dynamic linker takes no library from outside: copy it without that bit, or name the library in /etc/ld.so.preload", who)
	}
	if os.Geteuid() != 0 {
		if n, err := unix.Getxattr(program, "security.capability", nil); err == nil && n > 0 {
			return errors.New("it has file capabilities, so the dynamic linker takes no library from outside: copy it without them, or name the library in /etc/ld.so.preload")
		}
	}
	f, err := elf.Open(program)
	if err != nil {
		return interpreted(program)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return loads(p)
		}
	}
	return errors.New("it is a static program, which loads no library: link it dynamically with libibverbs")
}

// loads returns an error that says why a program's dynamic linker, which the
// segment names, cannot load the library. musl's lacks functions of glibc, and
// ends a program whose library needs them.
func loads(linker *elf.Prog) error {
	name, err := io.ReadAll(io.LimitReader(linker.Open(), unix.PathMax))
	if err == nil && strings.HasPrefix(path.Base(string(name)), "ld-musl-") {
		return errors.New("it is built for musl, whose dynamic linker cannot load the library, nor the adapter in it: use a program that is built for glibc")
	}
	return nil
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
func interpreted(script string) error {
	f, err := os.Open(script)
	if err != nil {
		return nil // a user who may run it need not be able to read it
	}
	defer f.Close()
	line, _ := bufio.NewReaderSize(f, 256).ReadSlice('\n')
	rest, ok := strings.CutPrefix(string(line), "#!")
	fields := strings.Fields(rest)
	if !ok || len(fields) == 0 || fields[0] == script {
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
