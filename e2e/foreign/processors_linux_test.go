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
					f.test(t, run{flags: short, packages: []string{"./rocev2"}, skip: slow})
					continue
				}
				f.test(t, run{flags: short, packages: core, skip: slices.Concat(p.skip, slow)})
				f.test(t, digests)
				// QEMU passes neither offloads nor steering
				// programs on.
				f.test(t, operations)
			}
		})
	}
}

var (
	short = []string{"-short"}
	core  = []string{"./rocev2/...", "./ib", "./memreg", "./qp/...", "./hca/engine"}
)

// digests are those of simulated networks.
var digests = run{packages: []string{"./fabric/lab"}, only: []string{"TestTransfer", "TestPermutation"}}

// operations are all of them, over sockets.
var operations = run{dir: "e2e", tags: "portable", flags: []string{"-parallel", "1"},
	packages: []string{"./loopback"}, only: []string{"TestEveryOperation"}, sub: "^IPv[46]$/^1024$"}

// slow are tests that take most of the time under emulation.
var slow = []skip{{
	[]string{"TestRecoverNoticesDamage", "TestUpdateEveryLength", "TestBurst", "TestEveryAttribute", "TestInFlightBeyondRoom",
		"TestSharedReceivesAreFair", "TestSpray", "TestSprayWithLoss", "TestMarksSpareTheBuffer", "TestReadKeepsToItsRoom", "TestReadAsksOnce"},
	"they take minutes under emulation, and are not of the processor",
}}

var noSIGBUS = []skip{{[]string{"TestGuarded/truncated", "TestBurstFromCutFile"}, "QEMU 7.2 tells a wrong address with SIGBUS"}}

var noAddress = []skip{
	{[]string{"TestGuarded", "TestBurstFromCutFile", "TestCopyFaultsInVanishedMemory"}, "QEMU 7.2 tells no address with a fault"},
	{[]string{"TestNoAllocation"}, "AES-GCM of Go allocates on this processor"},
}
