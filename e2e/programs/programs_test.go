//go:build linux

package programs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/e2e/guest"
)

const (
	enableEnv = "ROCEV2_E2E"          // set: run programs; "require": fail where they cannot run
	allEnv    = "ROCEV2_E2E_PROGRAMS" // "all": all cells, also with a kernel's
	pairEnv   = "ROCEV2_E2E_PAIR"     // "all": the cells also between two kernels, which shows what is not our fault
	binEnv    = "ROCEV2_E2E_BIN"      // the program under test, instead of building it
	docEnv    = "ROCEV2_E2E_DOC"      // file whose table is replaced
	labEnv    = "ROCEV2_E2E_LAB"      // guests that run already (rxeguest up), by the name of their namespace
)

// line is the kernel that our programs meet.
const line = "6.12"

// unavailable skips a test, or fails it where that is asked for.
func unavailable(t *testing.T, err error) {
	t.Helper()
	var u *guest.Unavailable
	if errors.As(err, &u) && os.Getenv(enableEnv) != "require" {
		t.Skip(u.Reason)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func enabled(t *testing.T) {
	t.Helper()
	if os.Getenv(enableEnv) == "" {
		t.Skipf("the programs of a distribution run with %s=1 (make e2e-programs)", enableEnv)
	}
}

func install(t *testing.T, needs []guest.Need) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	unavailable(t, guest.Install(ctx, needs, t.Logf))
}

// TestPrograms runs a few cells on loopback, in no namespace.
func TestPrograms(t *testing.T) {
	enabled(t)
	if os.Getenv(allEnv) == "all" {
		t.Skip("TestAllPrograms has these cells, too")
	}
	install(t, baseNeeds)
	bin := build(t)
	at := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), rand.IntN(256))
	one, two := ourSite(t, guest.Local{}, bin, at+"1"), ourSite(t, guest.Local{}, bin, at+"2")
	r := &runner{dir: openDir(t), port: freePort}
	for _, c := range cells() {
		if c.short {
			r.cell(t, c, twoOwners, one, two)
			r.cell(t, c, oneOwner, one, one)
		}
	}
}

// TestAllPrograms runs every cell: our programs with each other in a namespace,
// and with those of a kernel.
func TestAllPrograms(t *testing.T) {
	enabled(t)
	if os.Getenv(allEnv) != "all" {
		t.Skipf("all cells run with %s=all (make e2e-programs)", allEnv)
	}
	needs := baseNeeds
	for _, c := range cells() {
		needs = append(needs, c.needs...)
	}
	install(t, needs)
	lab := startLab(t)
	bin := build(t)
	addrs := guest.HostAddrs()
	one, two := ourSite(t, lab.Host.Unprivileged(), bin, addrs[0].String()), ourSite(t, lab.Host.Unprivileged(), bin, addrs[1].String())
	theirs := kernelSite(lab.Guest(line))
	theirs.rename(t, one.dev) // ucx_perftest has one name for both sides
	r := &runner{dir: openDir(t), port: nextPort, table: newTable([]kind{twoOwners, oneOwner, kernelServes, kernelDials}, line)}
	writeFiles(t, r.dir)
	for _, c := range cells() {
		r.cell(t, c, twoOwners, one, two)
		r.cell(t, c, oneOwner, one, one)
		r.cell(t, c, kernelServes, theirs, one)
		r.cell(t, c, kernelDials, one, theirs)
	}
	fmt.Print(r.table.markdown(), "report: programs: ", r.table.tally(), "\n")
	if file := os.Getenv(docEnv); file != "" {
		if err := r.table.write(file); err != nil {
			t.Error(err)
		}
	}
}

// TestBetweenKernels runs the cells between two kernels: what fails there is
// not our fault.
func TestBetweenKernels(t *testing.T) {
	enabled(t)
	if os.Getenv(pairEnv) != "all" {
		t.Skipf("the cells run between two kernels with %s=all", pairEnv)
	}
	lab := startLab(t, guest.Lines...)
	r := &runner{dir: openDir(t), port: nextPort}
	for _, c := range cells() {
		r.cell(t, c, kernels, kernelSite(lab.Guests[0]), kernelSite(lab.Guests[1]))
	}
}

// startLab boots guests or skips the test with the reason.
func startLab(t *testing.T, lines ...string) *guest.Lab {
	t.Helper()
	if name := os.Getenv(labEnv); name != "" {
		lab, err := guest.Connect(name)
		if err != nil {
			t.Fatal(err)
		}
		return lab
	}
	if len(lines) == 0 {
		lines = []string{line}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	lab, err := guest.Start(ctx, guest.Options{Lines: lines, Logf: t.Logf})
	unavailable(t, err)
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	return lab
}

// build makes the program under test, where an ordinary user can run it.
func build(t *testing.T) string {
	t.Helper()
	given := os.Getenv(binEnv)
	if given == "" {
		return compileCommand(t, "rocev2")
	}
	bin := filepath.Join(openDir(t), "rocev2")
	b, err := os.ReadFile(given)
	if err == nil {
		err = os.WriteFile(bin, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// runner runs cells one after the other.
type runner struct {
	dir   string
	port  func(*testing.T) int
	table *table
}

func (r *runner) cell(t *testing.T, c *cell, k kind, server, client *site) {
	if !c.has(k) {
		return
	}
	t.Run(strings.ReplaceAll(c.String(), " ", "_")+"/"+k.String(), func(t *testing.T) {
		st := &stage{kind: k, server: server, client: client, port: r.port(t), dir: r.dir}
		note := ""
		defer func() {
			if r.table != nil {
				r.table.set(c, k, result{outcome(t), note}, st.details)
			}
		}()
		note = c.run(t, st)
	})
}

func outcome(t *testing.T) string {
	switch {
	case t.Failed():
		return "FAIL"
	case t.Skipped():
		return "SKIP"
	}
	return "PASS"
}

// freePort is a TCP port that no socket has at the moment.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

var lastPort atomic.Int32

// nextPort is for a namespace without other programs. The next one is for a
// second attempt.
func nextPort(*testing.T) int { return int(20000 + lastPort.Add(2)%10000) }

// writeFiles makes what cells need: a file to carry, the programs of MPI, and
// the tests of rdma-core.
func writeFiles(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "file"), file(), 0o644); err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob("testdata/mpi/*.c")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no programs of MPI: %v", err)
	}
	for _, src := range sources {
		out := filepath.Join(dir, strings.TrimSuffix(filepath.Base(src), ".c"))
		if b, err := exec.CommandContext(t.Context(), "mpicc", "-O1", "-Wall", "-o", out, src).CombinedOutput(); err != nil {
			t.Fatalf("mpicc %s: %v\n%s", src, err, b)
		}
	}
	const unpack = `cp -r /usr/share/doc/rdma-core/tests "$1/pyverbs" && find "$1/pyverbs" -name '*.gz' -exec gunzip {} +
		chmod -R a+rwX "$1/pyverbs"`
	if b, err := exec.CommandContext(t.Context(), "sh", "-c", unpack, "sh", dir).CombinedOutput(); err != nil {
		t.Logf("the tests of rdma-core are not in its documentation: %v\n%s", err, b)
	}
}

// version is that of a package, as Debian has it.
func version(pkg string) string {
	out, err := exec.Command("dpkg-query", "--show", "--showformat=${Version}", pkg).Output()
	if err != nil {
		return "of an unknown version"
	}
	return string(out)
}
