package foreign

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/internal/debian"
)

// TestWindows runs tests as programs of Windows, under Wine: the core, worlds
// in virtual time, and the verbs.
func TestWindows(t *testing.T) {
	f := wine(t)
	f.test(t, windows)
	f.test(t, digests)
	f.test(t, sockets)
}

// sockets are tests of the link, one after the other: they take a port each.
var sockets = run{packages: []string{"./transport/udp"}, flags: []string{"-parallel", "1"},
	only: []string{"TestPortableTransfer", "TestPortableTrafficClass", "TestPortableRefuses", "TestPortableSourcePorts", "TestWakeIsKept", "TestPortableClose",
		"TestPortableAllocatesNothing", "TestPortableHeadersAllocateNothing", "TestPortableOddLengths", "TestPortableBuffers", "TestPortableTellsWhy"}}

var windows = run{
	flags: short,
	packages: []string{"./rocev2/...", "./ib", "./memreg", "./qp/...", "./hca/...", "./verbs/...",
		"./fabric/event", "./fabric/network", "./fabric/adapter", "./fabric/worldtest", "./transport", "./transport/psp"},
	skip: slices.Concat(slow, notWine),
}

var notWine = []skip{{
	[]string{"TestOpenAnAddressOfNoInterface"},
	"Wine 8 binds UDP sockets to IPv4 addresses that no interface has",
}, {
	[]string{"TestSealErrors", "TestSealedBesideClear", "TestMulticast"},
	"Wine 8 lacks SIO_UDP_NETRESET, without which package net opens no UDP socket",
}}

const wineFile = "/usr/lib/wine/wine64"

// wine returns Wine with a directory of its own.
func wine(t *testing.T) *foreigner {
	t.Helper()
	f := &foreigner{os: "windows", processor: "amd64", by: need(t, debian.Need{File: wineFile, Package: "wine64"})}
	home := f.boot(t)
	// Wine 8 lacks the library from which Go's runtime has random bytes.
	library := filepath.Join(home, "drive_c/windows/system32/bcryptprimitives.dll")
	if _, err := os.Stat(library); err != nil {
		if err := os.WriteFile(library, forwardingLibrary("bcryptprimitives.dll", "ProcessPrng", "advapi32.SystemFunction036"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// boot makes the directory that Wine takes for a system, and returns it. On
// some machines Wine ends at its start once, without a word: it is asked again,
// in another directory. Where it never starts the test is skipped.
func (f *foreigner) boot(t *testing.T) string {
	t.Helper()
	var failures []string
	for range 3 {
		home := t.TempDir()
		f.env = []string{"WINEPREFIX=" + home, "WINEDEBUG=-all"}
		call := func(name string, args ...string) error {
			cmd := exec.Command(name, args...)
			cmd.Env = append(os.Environ(), f.env...)
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w\n%s", cmd, err, out)
			}
			return nil
		}
		err := call(f.by, "wineboot", "--init")
		wait := func() error { return call("/usr/lib/wine/wineserver64", "--wait") } // it has files in there
		if err == nil {
			t.Cleanup(func() {
				if err := wait(); err != nil {
					t.Error(err)
				}
			})
			return home
		}
		failures = append(failures, err.Error())
		t.Log(err)
		wait()
	}
	t.Skipf("Wine does not start on this machine (see what wine64 wineboot --init says):\n%s", strings.Join(failures, "\n"))
	return ""
}
