package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/internal/testprogram"
	"github.com/gosoftroce/rocev2/programs"
)

// runTool is the program that was built, with an environment of its own.
type runTool struct {
	t    *testing.T
	path string
	dir  string // where its daemons are
}

func buildTool(t *testing.T) runTool {
	t.Helper()
	testprogram.NeedCC(t)
	dir, err := os.MkdirTemp("", "roce") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return runTool{t, testprogram.Build(t).Path(), dir}
}

func (p runTool) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(p.t.Context(), p.path, append([]string{"run"}, args...)...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, programsEnv+"=") || strings.HasPrefix(s, "XDG_RUNTIME_DIR=")
	})
	cmd.Env = append(cmd.Env, "TMPDIR="+p.dir, "LC_ALL=C")
	return cmd
}

// sockets are those of the daemons that run.
func (p runTool) sockets() []string {
	list, err := filepath.Glob(filepath.Join(p.dir, "rocev2-*", "*", "socket"))
	if err != nil {
		p.t.Fatal(err)
	}
	return list
}

func TestRunProgram(t *testing.T) {
	t.Parallel()
	p := buildTool(t)
	a, b := freeAddress(), freeAddress()
	for _, c := range []struct {
		name, out, err string
		args           []string
		code           int
	}{
		{name: "the tree", args: []string{"-d", a, "-d", b, "--", "ls", "/sys/class/infiniband"}, out: "rxe_lo0\nrxe_lo1\n"},
		{name: "the node", args: []string{"-d", a, "--", "stat", "-c", "%F %t", "/dev/infiniband/uverbs0"}, out: "character special file e7\n"},
		{name: "children, too", args: []string{"-d", a, "--", "sh", "-c", "cat /sys/class/infiniband/*/ports/1/gid_attrs/ndevs/0"}, out: "lo\n"},
		{name: "the status", args: []string{"-d", a, "--", "sh", "-c", "exit 7"}, code: 7},
		{name: "the program's flags", args: []string{"-d", a, "echo", "-d", "x", "--serve"}, out: "-d x --serve\n"},
		{name: "no program", args: []string{"-d", a}, code: 2, err: "which program?"},
		{name: "no such program", args: []string{"--", "no-such-program"}, code: 127, err: "no-such-program: executable file not found"},
		{name: "no such path", args: []string{"--", "/no/such/program"}, code: 127, err: "/no/such/program: no such file or directory"},
		{name: "a script without its interpreter", args: []string{"-d", a, "--", script(t, "#!/no/such/interpreter\n", 0o755)}, code: 127, err: "no such file or directory"},
		{name: "no executable", args: []string{"--", script(t, "#!/bin/sh\n", 0o644)}, code: 126, err: "permission denied"},
		{name: "a directory", args: []string{"--", t.TempDir()}, code: 126, err: "is a directory"},
		{name: "no program's format", args: []string{"-d", a, "--", script(t, "\x7fnonsense", 0o755)}, code: 126, err: "exec format error"},
		{name: "no such address", args: []string{"-d", "192.0.2.1", "--", "true"}, code: 1, err: "192.0.2.1"},
		{name: "a static program", args: []string{"--", staticProgram(t), "version"}, code: 126, err: "static program"},
		{name: "a program for musl", args: []string{"--", muslProgram(t)}, code: 126, err: "built for musl"},
	} {
		var out, errs strings.Builder
		cmd := p.command(c.args...)
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		if cmd.ProcessState.ExitCode() != c.code || out.String() != c.out || !strings.Contains(errs.String(), c.err) {
			t.Errorf("%s: %v\nstdout %q, want %q\nstderr %q, want %q", c.name, err, out.String(), c.out, errs.String(), c.err)
		}
	}
}

// script returns a file with a text and a mode.
func script(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "script")
	if err := errors.Join(os.WriteFile(name, []byte(text), mode), os.Chmod(name, mode)); err != nil {
		t.Fatal(err)
	}
	return name
}

// What is on PATH and cannot be executed is no executable, as in shells.
func TestRunProgramOnPath(t *testing.T) {
	t.Parallel()
	p := buildTool(t)
	for text, mode := range map[string]os.FileMode{"127": 0, "126": 0o644} {
		dir := t.TempDir()
		if mode != 0 {
			if err := os.WriteFile(filepath.Join(dir, "tool"), nil, mode); err != nil {
				t.Fatal(err)
			}
		}
		cmd := p.command("--", "tool")
		cmd.Env = append(cmd.Env, "PATH="+dir)
		if out, _ := cmd.CombinedOutput(); fmt.Sprint(cmd.ProcessState.ExitCode()) != text {
			t.Errorf("mode %o: status %d, %s; want %s", mode, cmd.ProcessState.ExitCode(), out, text)
		}
	}
}

// A directory that another user has made is in the way of no other.
func TestRunProgramBesideAnotherUsersDirectory(t *testing.T) {
	t.Parallel()
	p := buildTool(t)
	name := filepath.Join(p.dir, fmt.Sprintf("rocev2-%d", os.Geteuid()))
	if err := errors.Join(os.Mkdir(name, 0o700), os.Chmod(name, 0o755)); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(name, 12345, 12345); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		out, err := p.command("-d", freeAddress(), "--", "sh", "-c", "echo $ROCEV2_PROGRAMS").CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), name+".1/") {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// staticProgram returns a program without a dynamic linker: the headers of
// /bin/true without what names one.
func staticProgram(t *testing.T) string {
	return changedProgram(t, func(f *elf.File, b []byte, at int, _ *elf.Prog) {
		f.ByteOrder.PutUint32(b[at:], uint32(elf.PT_NULL))
	})
}

// muslProgram returns a program whose dynamic linker is that of musl, by name.
func muslProgram(t *testing.T) string {
	return changedProgram(t, func(_ *elf.File, b []byte, _ int, p *elf.Prog) {
		clear(b[p.Off : p.Off+p.Filesz])
		copy(b[p.Off:p.Off+p.Filesz], "/lib/ld-musl-any.so")
	})
}

// changedProgram returns /bin/true after change, which gets where the header of
// the segment is that names the dynamic linker.
func changedProgram(t *testing.T, change func(f *elf.File, b []byte, at int, p *elf.Prog)) string {
	t.Helper()
	b, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil || f.Class != elf.ELFCLASS64 {
		t.Skip("/bin/true is no program of 64 bits: run it on a system of 64 bits")
	}
	const headers, header = 64, 56
	for i, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			change(f, b, headers+i*header, p)
		}
	}
	name := filepath.Join(t.TempDir(), "changed")
	if err := os.WriteFile(name, b, 0o700); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestRunProgramTwice: programs share the daemon, which ends after the last.
func TestRunProgramTwice(t *testing.T) {
	t.Parallel()
	p := buildTool(t)
	addr := freeAddress()
	first := p.command("-d", addr, "--", "cat")
	in, err := first.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	if out, err := p.command("-d", addr, "--", "true").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if list := p.sockets(); len(list) != 1 {
		t.Fatalf("the daemons are %q, want one", list)
	}
	held, err := programs.Hold(filepath.Dir(p.sockets()[0]))
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
	if err := first.Wait(); err != nil {
		t.Error(err)
	}
	held.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for len(p.sockets()) > 0 {
		<-tick.C
	}
}

// TestRunProgramWhileADaemonEnds starts programs in the moments when the daemon
// of the one before ends.
func TestRunProgramWhileADaemonEnds(t *testing.T) {
	t.Parallel()
	p := buildTool(t)
	addr := freeAddress()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for range 4 {
		if out, err := p.command("-d", addr, "--", "ls", "/sys/class/infiniband").CombinedOutput(); err != nil || string(out) != "rxe_lo0\n" {
			t.Errorf("%v: %s", err, out)
		}
		<-tick.C
	}
}

// TestRunProgramIgnoresSignals: a shell has programs that it starts in the
// background ignore the interrupt, and nohup has them ignore the hang-up.
func TestRunProgramIgnoresSignals(t *testing.T) {
	t.Parallel()
	p := buildTool(t)
	run := p.command("-d", freeAddress(), "--", "sh", "-c", "for s in INT HUP; do kill -$s $$; done; echo alive; kill -USR2 $$")
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", `trap '' INT HUP; exec "$@"`, "sh"}, run.Args...)...)
	cmd.Env = run.Env
	out, err := cmd.CombinedOutput()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); string(out) != "alive\n" || !ok || status.Signal() != syscall.SIGUSR2 {
		t.Errorf("%v: %q", err, out)
	}
}

// TestRunProgramKeepsPdeathsig: the signal for the end of the parent is kept
// over exec, but it is of a thread.
func TestRunProgramKeepsPdeathsig(t *testing.T) {
	t.Parallel()
	p := buildTool(t)
	dir := t.TempDir()
	source, bin := filepath.Join(dir, "death.c"), filepath.Join(dir, "death")
	if err := os.WriteFile(source, []byte(`
#include <stdio.h>
#include <sys/prctl.h>
int main(void) { int s = 0; prctl(PR_GET_PDEATHSIG, &s); printf("%d\n", s); }`), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-o", bin, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	runtime.LockOSThread() // it is the parent
	defer runtime.UnlockOSThread()
	cmd := p.command("-d", freeAddress(), "--", bin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGUSR1}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != fmt.Sprintln(int(syscall.SIGUSR1)) {
		t.Errorf("%v: %q", err, out)
	}
}

// TestRunProgramWithOddDirectories: the library is where the dynamic linker
// finds it, or the tool says why there is none.
func TestRunProgramWithOddDirectories(t *testing.T) {
	t.Parallel()
	if !programs.Carried() {
		t.Skip("the tool carries no libraries, and builds none outside of its source: make preload")
	}
	p := buildTool(t)
	for _, name := range []string{"plain", "a b", "$LIB", "c:d"} {
		if err := os.MkdirAll(filepath.Join(p.dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := p.command("-d", freeAddress(), "--", "sh", "-c", "cd / && ls /sys/class/infiniband")
		cmd.Dir = p.dir
		cmd.Env = append(cmd.Env, "TMPDIR="+name, "XDG_CACHE_HOME="+p.dir)
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "rxe_lo0\n" {
			t.Errorf("TMPDIR=%q: %v: %s", name, err, out)
		}
	}
	cmd := p.command("--", "true")
	cmd.Env = append(cmd.Env, "TMPDIR="+filepath.Join(p.dir, "a b"), "XDG_CACHE_HOME=", "HOME=")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "set TMPDIR") {
		t.Errorf("nowhere to put it: %v: %s", err, out)
	}
}

func TestRunProgramPassesSignalsOn(t *testing.T) {
	t.Parallel()
	p := buildTool(t)
	cmd := p.command("-d", freeAddress(), "--", "sh", "-c", "kill -TERM $$")
	var status syscall.WaitStatus
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		status = exit.Sys().(syscall.WaitStatus)
	}
	if status.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
}

// TestRunDevinfo runs the program of rdma-core, if the machine has it.
func TestRunDevinfo(t *testing.T) {
	t.Parallel()
	if os.Getenv("ROCEV2_E2E") == "" {
		t.Skip("the programs of a distribution run with ROCEV2_E2E=1 (make test-programs)")
	}
	if _, err := exec.LookPath("ibv_devinfo"); err != nil {
		t.Skip("there is no ibv_devinfo: install ibverbs-utils and ibverbs-providers")
	}
	p := buildTool(t)
	addr := freeAddress()
	out, err := p.command("-d", addr, "--", "ibv_devinfo", "-v").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "PORT_ACTIVE") || !strings.Contains(string(out), "::ffff:"+addr) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestProgramEnv(t *testing.T) {
	t.Parallel()
	env := programEnv([]string{"A=b", "LD_PRELOAD=librspreload.so:/old/librocev2-preload-1.so", "ROCEV2_PROGRAMS=/old"}, "/dir", "/lib.so")
	if want := []string{"A=b", "LD_PRELOAD=librspreload.so:/lib.so", "ROCEV2_PROGRAMS=/dir"}; !slices.Equal(env, want) {
		t.Errorf("got %q, want %q", env, want)
	}
}

func TestDaemonName(t *testing.T) {
	t.Parallel()
	one := []netip.Addr{netip.MustParseAddr("fe80::1%eth0")}
	if got := daemonName(programFlags{}, one); got != "fe80__1-eth0" {
		t.Errorf("got %q", got)
	}
	many := slices.Repeat([]netip.Addr{netip.MustParseAddr("127.0.0.1")}, 20)
	if got := daemonName(programFlags{shm: true}, many); len(got) > 40 {
		t.Errorf("got %q", got)
	}
}
