package machine

import (
	"reflect"
	"testing"
	"testing/fstest"
)

func file(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s + "\n")} }

const cpu0 = "sys/devices/system/cpu/cpu0/cache/"

// A guest of two cores.
func intel() fstest.MapFS {
	one := func(n, core string) string {
		return "processor\t: " + n + "\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 207\nmodel name\t: Intel(R) Xeon(R) Processor\n" +
			"stepping\t: 2\nphysical id\t: 0\ncore id\t\t: " + core + "\nflags\t\t: fpu hypervisor avx512f\n\n"
	}
	return fstest.MapFS{
		"proc/cpuinfo":                                      file(one("0", "0") + one("1", "1")),
		cpu0 + "index0/level":                               file("1"),
		cpu0 + "index0/type":                                file("Data"),
		cpu0 + "index0/size":                                file("48K"),
		cpu0 + "index0/shared_cpu_list":                     file("0"),
		cpu0 + "index1/level":                               file("1"),
		cpu0 + "index1/type":                                file("Instruction"),
		cpu0 + "index1/size":                                file("32K"),
		cpu0 + "index2/level":                               file("2"),
		cpu0 + "index2/type":                                file("Unified"),
		cpu0 + "index2/size":                                file("2048K"),
		cpu0 + "index2/shared_cpu_list":                     file("0"),
		cpu0 + "index3/level":                               file("3"),
		cpu0 + "index3/type":                                file("Unified"),
		cpu0 + "index3/size":                                file("307200K"),
		cpu0 + "index3/shared_cpu_list":                     file("0-1"),
		"sys/devices/system/cpu/vulnerabilities/meltdown":   file("Not affected"),
		"sys/devices/system/cpu/vulnerabilities/spectre_v2": file("Mitigation: Enhanced / Automatic IBRS"),
		"sys/devices/system/cpu/vulnerabilities/mds":        file("Vulnerable"),
	}
}

func TestIntel(t *testing.T) {
	t.Parallel()
	got := Read(intel())
	want := Processor{
		CPU: "Intel(R) Xeon(R) Processor", Vendor: Intel, Family: "6", Model: "207", Stepping: "2", CPUs: 2, Cores: 2, Virtual: true,
		Caches:      []Cache{{1, 48 << 10, 1}, {2, 2 << 20, 1}, {3, 300 << 20, 2}},
		Mitigations: map[string]string{"spectre_v2": "Enhanced / Automatic IBRS", "mds": "Vulnerable"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for what, pair := range map[string][2]string{
		"folder":  {got.Folder(), "intel-6-207"},
		"title":   {got.Title(), "Intel Xeon Processor (Emerald Rapids)"},
		"numbers": {got.Numbers(), "intel family 6 model 207 stepping 2"},
		"caches":  {got.Cached(), "L1d 48 KiB, L2 2 MiB, L3 300 MiB shared by 2"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %q, want %q", what, pair[0], pair[1])
		}
	}
}

// Two threads of one core are one core, and the same core in another socket is
// another one.
func TestCores(t *testing.T) {
	t.Parallel()
	info := ""
	for i, at := range [][2]string{{"0", "0"}, {"0", "1"}, {"1", "0"}, {"0", "0"}} {
		info += "processor: " + string(rune('0'+i)) + "\nphysical id: " + at[0] + "\ncore id: " + at[1] + "\n"
	}
	if p := Read(fstest.MapFS{"proc/cpuinfo": file(info)}); p.CPUs != 4 || p.Cores != 3 {
		t.Errorf("%d processors, %d cores", p.CPUs, p.Cores)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ info, folder, title string }{
		{"vendor_id: AuthenticAMD\ncpu family: 26\nmodel: 2\nmodel name: AMD EPYC\n", "amd-26-2", "AMD EPYC (Zen 5)"},
		{"vendor_id: AuthenticAMD\ncpu family: 26\nmodel name: AMD EPYC\n", "amd-26", "AMD EPYC"},
		{"vendor_id: AuthenticAMD\ncpu family: 26\nmodel: 96\nmodel name: AMD EPYC\n", "amd-26-96", "AMD EPYC"},
		{"CPU implementer: 0x41\nCPU architecture: 8\nCPU variant: 0x1\nCPU part: 0xd40\n", "arm-8-0xd40", "unknown processor (Neoverse V1)"},
		{"CPU implementer: 0x99\nCPU architecture: 8\nCPU part: 0x001\n", "arm-implementer-0x99-8-0x001", "unknown processor"},
		{"model name: Some ../../CPU\n", "some-cpu", "Some ../../CPU"},
		{"", "unknown", "unknown processor"},
	} {
		p := Read(fstest.MapFS{"proc/cpuinfo": file(c.info)})
		if p.Folder() != c.folder || p.Title() != c.title {
			t.Errorf("%q: %q, %q, want %q, %q", c.info, p.Folder(), p.Title(), c.folder, c.title)
		}
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]int{"": 0, "0": 1, "0-3": 4, "0,2-3,8": 4, "x-2": 0} {
		if got := count(list); got != want {
			t.Errorf("%q: %d processors, want %d", list, got, want)
		}
	}
	for size, want := range map[string]int{"48K": 48 << 10, "2M": 2 << 20, "": 0, "7": 7} {
		if got := sizeOf(size); got != want {
			t.Errorf("%q: %d bytes, want %d", size, got, want)
		}
	}
}

// This machine identifies itself, on whatever system the test runs.
func TestHere(t *testing.T) {
	t.Parallel()
	p := Here()
	if p.CPUs < 1 || p.Folder() == "" || p.Title() == "" {
		t.Errorf("%+v", p)
	}
}
