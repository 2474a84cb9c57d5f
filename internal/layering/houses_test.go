package layering

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxFolders is how many folders the repository may have at its top: more are
// not seen at a glance.
const maxFolders = 18

// The houses of docs/architecture.md. What is in none of them is internal, or
// has no package of Go.
const (
	core       = "Core"
	faces      = "Faces"
	laboratory = "Laboratory"
)

// houses says which packages stand in which house. The longest pattern that
// fits counts.
var houses = map[string]string{
	"rocev2/...":    core,
	"ib/...":        core,
	"memreg/...":    core,
	"qp/...":        core,
	"hca/...":       core,
	"transport/...": core,
	"verbs/...":     core,
	// The protocol of the connection manager is pure, and serves the owner
	// of a port, too.
	"rdma/cm/agent/...": core,

	"rdma/...":     faces,
	"programs/...": faces,
	"observe/...":  faces,
	"cmd/...":      faces,

	"fabric/...":   laboratory,
	"e2e/...":      laboratory,
	"bench/...":    laboratory,
	"examples/...": laboratory,
	// Connected devices on a network of package fabric, for tests.
	"verbs/verbstest/...": laboratory,
	// Imported by tests alone, with networks of package fabric.
	"programs/interop/internal/testpair/...": laboratory,
}

// visits are the packages of the laboratory that a face imports all the same.
var visits = map[string][]string{
	"cmd/rocev2": {"fabric/lab", "fabric/sweep", "fabric/record", "fabric/report", "fabric/replay", "fabric/traffic/chakra"}, // rocev2 sim is their face
}

// houseOf returns the house of a package, "" if it has none.
func houseOf(name string) (house string) {
	longest := 0
	for pattern, h := range houses {
		if len(pattern) > longest && matches(name, []string{pattern}) {
			house, longest = h, len(pattern)
		}
	}
	return house
}

// houseProblems reports the imports by which the core would need another house,
// or a face the laboratory.
func houseProblems(p pkg) (problems []string) {
	name := strings.TrimPrefix(p.ImportPath, module+"/")
	house := houseOf(name)
	if house == "" && !strings.HasPrefix(name, "internal/") {
		problems = append(problems, fmt.Sprintf("package %s stands in no house: say in houses in which", name))
	}
	for _, imp := range p.Imports {
		own, ok := strings.CutPrefix(imp, module+"/")
		if !ok || slices.Contains(visits[name], own) {
			continue
		}
		if to := houseOf(own); house == core && to != core && to != "" || house == faces && to == laboratory {
			problems = append(problems, fmt.Sprintf("%s (%s) imports %s (%s)", name, house, own, to))
		}
	}
	return problems
}

func TestHousesStandApart(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		for _, problem := range houseProblems(p) {
			t.Error(problem)
		}
	}
}

// TestTheCheckOfHousesCanFail feeds it what it forbids, and what it allows.
func TestTheCheckOfHousesCanFail(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, imports string
		bad           bool
	}{
		{"hca", "fabric", true},
		{"qp/requester", "observe/metrics", true},
		{"transport/owner", "rdma/cm", true},
		{"verbs", "verbs/verbstest", true},
		{"rdma/cm/agent", "rdma/cm", true},
		{"cmd/rocev2d", "fabric/lab", true},
		{"rdma", "e2e/tun", true},
		{"unheardof", "os", true},
		{"transport/owner/relay", "rdma/cm/agent", false},
		{"hca", "internal/heap", false},
		{"rdma", "verbs", false},
		{"cmd/rocev2", "fabric/lab", false},
		{"fabric/world", "verbs", false},
		{"internal/devices", "verbs", false},
	} {
		p := pkg{ImportPath: module + "/" + c.name, Imports: []string{"fmt", module + "/" + c.imports}}
		if bad := houseProblems(p); (len(bad) > 0) != c.bad {
			t.Errorf("%s imports %s: %q", c.name, c.imports, bad)
		}
	}
}

var (
	firstCell = regexp.MustCompile("(?m)^\\| ((?:`[\\w/]+`(?:, )?)+) \\|")
	inCode    = regexp.MustCompile("`([\\w/]+)`")
)

// drawn returns the packages in the tables below the headings of the houses in
// a text.
func drawn(text string) map[string]string {
	in := map[string]string{}
	for _, house := range []string{core, faces, laboratory} {
		_, part, _ := strings.Cut(text, "\n### "+house+"\n")
		part, _, _ = strings.Cut(part, "\n### ")
		for _, row := range firstCell.FindAllStringSubmatch(part, -1) {
			for _, name := range inCode.FindAllStringSubmatch(row[1], -1) {
				in[name[1]] = house
			}
		}
	}
	return in
}

// TestHousesAreDrawn: docs/architecture.md has every package of the core, and
// has packages in the house where they stand.
func TestHousesAreDrawn(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	in := drawn(string(text))
	for name, house := range in {
		if want := houseOf(name); house != want {
			t.Errorf("docs/architecture.md has %s in the house %q, not %q", name, house, want)
		}
		if _, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(name))); err != nil {
			t.Errorf("docs/architecture.md: %v", err)
		}
	}
	if len(in) < 50 {
		t.Errorf("docs/architecture.md has %d packages: the test does not see the tables", len(in))
	}
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if houseOf(name) == core && in[name] == "" {
			t.Errorf("docs/architecture.md has no row for package %s", name)
		}
	}
}

// TestCoreIsTestedFirst: the packages that the Makefile tests first are those
// of the core.
func TestCoreIsTestedFirst(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "\nCORE := ")
	list, _, _ = strings.Cut(list, "\n")
	var want, have []string
	for pattern, house := range houses {
		if house == core {
			want = append(want, "./"+pattern)
		}
	}
	have = strings.Fields(list)
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(have, want) {
		t.Errorf("the Makefile has CORE := %q, the core is %q", have, want)
	}
}

// folders returns those of the names of a directory that a reader sees at its
// top: neither what begins with a dot, nor what is built.
func folders(entries []os.DirEntry) (names []string) {
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && e.Name() != "bin" && e.Name() != "dist" {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestFewFoldersAtTheTop keeps the repository at what one sees at a glance.
func TestFewFoldersAtTheTop(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	names := folders(entries)
	if len(names) > maxFolders {
		t.Errorf("%d folders at the top, more than %d: %q", len(names), maxFolders, names)
	}
	if !slices.Contains(names, "verbs") {
		t.Errorf("%q: the test does not see the top", names)
	}
}
