package foreign

import (
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/internal/debian"
)

// TestProcessors runs the core on emulated processors: the codec with the ICRC
// and its assembly, memory and its atomics, queue pairs in virtual time, every
// operation over sockets, and the digests of simulated networks.
func TestProcessors(t *testing.T) {
	for _, p := range []struct {
		name, qemu string
		cpus       []string // the first has all tests, the others the ICRC
		skip       []skip
	}{
		{"arm64", "aarch64", []string{"max", "cortex-a53", "neoverse-n1"}, noSIGBUS},
		{"s390x", "s390x", []string{"max"}, noSIGBUS}, // the other byte order
		{"riscv64", "riscv64", []string{"rv64"}, nil},
		{"ppc64le", "ppc64le", []string{"power9"}, noAddress},
	} {
		t.Run(p.name, func(t *testing.T) {
			qemu := need(t, debian.Need{File: "qemu-" + p.qemu + "-static", Package: "qemu-user-static"})
			for i, cpu := range p.cpus {
				f := foreigner{os: "linux", processor: p.name, by: qemu + " -cpu " + cpu}
				if i > 0 {
					f.test(t, run{args: []string{"-short", "./rocev2"}, skip: slow})
					continue
				}
				f.test(t, run{args: core, skip: slices.Concat(p.skip, slow)})
				f.test(t, run{args: []string{"-run", "^Test(Transfer|Permutation)$", "./fabric/lab"}})
				// QEMU passes neither offloads nor steering
				// programs on.
				f.test(t, run{dir: "e2e", args: []string{"-tags", "portable", "-parallel", "1", "-run", "^TestEveryOperation$/^IPv[46]$/^1024$", "./loopback"}})
			}
		})
	}
}

var core = []string{"-short", "./rocev2/...", "./ib", "./memreg", "./qp/...", "./hca/engine"}

// slow are tests that take most of the time under emulation.
var slow = []skip{{
	"^Test(RecoverNoticesDamage|UpdateEveryLength|Burst|EveryAttribute|InFlightBeyondRoom|SharedReceivesAreFair|Spray.*)$",
	"they take minutes under emulation, and are not of the processor",
}}

var noSIGBUS = []skip{{"^TestGuarded$/^truncated$|^TestBurstFromCutFile$", "QEMU 7.2 tells a wrong address with SIGBUS"}}

var noAddress = []skip{
	{"^Test(Guarded|BurstFromCutFile|CopyFaultsInVanishedMemory)$", "QEMU 7.2 tells no address with a fault"},
	{"^TestNoAllocation$", "AES-GCM of Go allocates on this processor"},
}
