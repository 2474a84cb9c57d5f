package layering

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/gosoftroce/rocev2"

// layers says, for every package of the product, which packages of this module
// it may import. A package that is not listed fails the test: a change that
// adds one says here what it may import.
var layers = map[string][]string{
	"rocev2":          {},
	"rocev2/layers":   {"rocev2"},
	"rocev2/mad":      {"rocev2"},
	"rocev2/psp":      {},
	"observe/dissect": {"rocev2", "rocev2/mad", "rocev2/psp", "rdma/rdmanet/rsocket"},

	"rocev2/clock": {},
	"hca/task":     {"rocev2/clock"},
	"ib":           {"rocev2"},

	"rdma/cm/agent": {"internal/list", "rocev2/clock", "rocev2", "rocev2/mad"},

	"memreg":         {"rocev2", "ib"},
	"memreg/mapping": {"ib", "memreg"},

	"qp/queue":     {"rocev2/clock", "rocev2", "ib", "memreg"},
	"qp/cc":        {"rocev2/clock"},
	"qp/trace":     {"rocev2", "ib"},
	"qp/conn":      {"internal/counters", "rocev2/clock", "rocev2", "ib", "memreg", "qp/queue", "qp/cc", "qp/trace"},
	"qp/requester": {"rocev2/clock", "rocev2", "ib", "memreg", "qp/queue", "qp/cc", "qp/trace", "qp/conn"}, // never the responder
	"qp/responder": {"rocev2/clock", "rocev2", "ib", "memreg", "qp/queue", "qp/cc", "qp/conn"},             // never the requester
	"qp/datagram":  {"rocev2/clock", "rocev2", "ib", "memreg", "qp/queue", "qp/cc", "qp/conn"},             // neither of the two
	"qp":           {"rocev2/clock", "rocev2", "ib", "memreg", "qp/queue", "qp/cc", "qp/trace", "qp/conn", "qp/requester", "qp/responder", "qp/datagram"},
	"qp/qptest":    {"rocev2/clock", "rocev2", "ib", "memreg", "qp", "qp/queue", "qp/cc"},

	"transport":       {"rocev2", "internal/counters"},
	"transport/udp":   {"rocev2", "transport", "internal/procfs", "internal/sockfilter", "internal/dontfrag", "internal/ifaddrs"},
	"transport/shm":   {"rocev2", "transport", "internal/procfs", "internal/userdir"},
	"transport/lease": {"rocev2", "transport", "transport/guard", "transport/udp", "internal/userdir", "internal/procfs"},
	"transport/fault": {"rocev2", "transport"},
	"transport/tap":   {"rocev2", "transport"},
	"transport/psp":   {"internal/counters", "rocev2", "rocev2/psp", "transport"},
	"transport/guard": {"internal/counters", "rocev2", "rocev2/psp", "transport"},

	// It speaks with other hosts by itself, by TLS.
	"transport/keychannel": {"internal/counters", "rocev2/psp", "transport/guard"},

	"transport/owner/relay": {"internal/list", "rocev2/clock", "rocev2", "rocev2/mad", "rdma/cm/agent"},
	"transport/owner": {"rocev2/clock", "rocev2", "rocev2/mad", "transport", "transport/guard", "transport/udp", "transport/lease", "transport/owner/relay",
		"internal/userdir", "internal/procfs", "internal/loglimit"},

	"fabric": {"rocev2", "transport", "internal/heap"},

	// The network in virtual time, which knows no packet formats.
	"fabric/event":             {},
	"fabric/network":           {"fabric/event", "internal/heap", "internal/mailbox"},
	"fabric/cores":             {}, // goroutines, for those that run a network: it is a parameter there
	"fabric/adapter":           {"fabric/event", "fabric/network", "rocev2/clock", "rocev2", "ib", "memreg", "qp", "qp/cc", "hca/engine", "transport", "internal/heap", "internal/mailbox"},
	"fabric/tcp":               {"fabric/event", "fabric/network", "fabric/adapter", "internal/heap"}, // beside the adapters
	"fabric/topology":          {"fabric/event", "fabric/network"},
	"fabric/switches":          {"fabric/network"},
	"fabric/topology/topofile": {"fabric/topology"}, // files of other simulators
	"fabric/traffic":           {},

	"fabric/traffic/tracefile": {}, // files of other simulators
	"fabric/traffic/chakra":    {},

	"fabric/plot": {},
	"fabric/lab": {"fabric/event", "fabric/cores", "fabric/network", "fabric/switches", "fabric/topology", "fabric/topology/topofile", "fabric/traffic", "fabric/traffic/tracefile", "fabric/traffic/chakra", "fabric/adapter", "fabric/tcp", "fabric/plot",
		"ib", "rocev2", "qp", "qp/cc", "qp/trace", "hca/engine", "internal/closest", "internal/tomllines"},
	"fabric/record": {"fabric/event", "fabric/network", "fabric/lab", "rocev2", "ib", "qp/trace", "observe/dissect"}, // files of a result, for other programs
	"fabric/replay": {"fabric/lab", "rocev2", "observe/dissect"},                                                     // a capture as a scenario
	"fabric/report": {"fabric/lab", "fabric/plot", "fabric/network", "fabric/sweep", "fabric/record"},
	"fabric/sweep":  {"fabric/lab"},                                                                                                                             // many runs of a scenario
	"fabric/world":  {"fabric/event", "fabric/network", "fabric/world/frames", "rocev2/clock", "hca/task", "rocev2", "hca/engine", "transport", "hca", "verbs"}, // above the verbs: it runs programs

	// Programs with goroutines, for tests only, as verbs/verbstest.
	"fabric/worldtest":    {"fabric/event", "fabric/network", "fabric/world/frames", "rocev2", "transport", "verbs"},
	"fabric/world/frames": {"fabric/network", "rocev2", "transport"},

	"hca/engine": {"internal/list", "rocev2/clock", "internal/heap", "rocev2", "ib", "memreg", "qp", "transport"}, // of transport only the batches and the path, which are plain data
	"hca/wake":   {"rocev2/clock"},
	"hca/strict": {"ib"},
	"hca":        {"internal/list", "rocev2/clock", "hca/wake", "hca/strict", "hca/task", "internal/heap", "rocev2", "ib", "memreg", "qp", "hca/engine", "transport", "transport/udp", "fabric", "internal/ifaddrs"},

	"verbs": {"hca/task", "hca/engine", "internal/counters", "rocev2/psp", "transport/psp", "transport/guard", "transport/keychannel", "rocev2", "ib", "memreg", "memreg/mapping", "qp", "qp/conn", "qp/cc", "qp/trace", "transport", "transport/udp", "transport/shm", "transport/lease", "transport/owner", "hca", "hca/strict"},

	// Faces beside verbs may import hca, too: verbs.HCA has the adapter
	// below a device.

	"rdma/cm":     {"rdma/secure", "internal/list", "rocev2/clock", "hca/task", "rocev2/mad", "rdma/cm/agent", "verbs", "internal/devices"},
	"rdma/secure": {"rocev2/psp", "verbs"},
	"rdma":        {"rdma/secure", "verbs", "rdma/cm", "hca/wake", "internal/devices", "memreg/mapping"},

	"rdma/rdmanet/rsocket": {},
	"rdma/rdmanet":         {"rdma/secure", "verbs", "rdma/cm", "hca/wake", "internal/devices", "memreg/mapping", "rdma/rdmanet/rsocket"},

	// The kernel's side of the verbs, for unmodified programs.
	"programs/uverbs/abi":        {},
	"programs/uverbs/ring":       {"rocev2", "ib"},
	"programs/uverbs":            {"rocev2/clock", "rocev2", "ib", "memreg", "qp", "hca", "hca/strict", "transport", "programs/uverbs/abi", "programs/uverbs/ring"},
	"programs/uverbs/uverbstest": {"ib"}, // for tests only

	// And of the connection manager: errors are those of the verbs.
	"programs/ucma/abi": {"programs/uverbs/abi"},
	"programs/ucma":     {"verbs", "rdma/cm", "programs/ucma/abi", "programs/uverbs/abi"},

	"programs":           {"verbs", "hca/strict", "rdma/cm", "transport/owner", "transport/lease", "programs/uverbs", "programs/uverbs/...", "programs/ucma"},
	"programs/mkpreload": {"programs"},
	"programs/adapter":   {"verbs", "rdma/cm", "hca", "hca/strict", "memreg", "programs/uverbs", "programs/uverbs/...", "programs/ucma"}, // a library for programs in C

	"verbs/verbstest": {"verbs", "fabric"}, // imports testing: for tests only

	"programs/interop/internal/testpair": {"programs/interop", "rdma/cm", "verbs", "verbs/verbstest", "fabric", "transport/fault"},

	// Programs import verbs, and a kind of link where they want another
	// one. What is below verbs (ib, memreg, qp, hca) is not theirs.
	"programs/interop/...": {"hca/task", "verbs", "rdma/cm", "rdma/rdmanet", "rdma/secure", "programs/interop/..."},
	"cmd/...":              {"verbs", "qp/trace", "transport/...", "rocev2/mad", "observe/dissect", "programs/interop/...", "observe/doctor/...", "observe/conformance/...", "rdma", "rdma/secure", "cmd/rocev2d/server/...", "programs", "transport/owner", "fabric/lab", "fabric/sweep", "fabric/record", "fabric/report", "fabric/replay", "fabric/traffic/chakra", "internal/closest", "internal/tomllines", "internal/sockfilter", "internal/userdir", "internal/tlsfiles", "internal/regular", "cmd/..."},

	"cmd/build": {"rocev2"}, // what the commands say of the processor

	// What stops people, and the tools that show it.
	"observe/doctor":       {"verbs", "rocev2", "transport", "transport/udp", "transport/lease", "transport/keychannel", "observe/doctor/...", "internal/procfs", "internal/ifaddrs"},
	"observe/doctor/ping":  {"verbs", "rocev2", "rocev2/mad"},
	"observe/doctor/probe": {"rocev2", "internal/dontfrag"},

	// What tests a peer makes packets by hand, not by a queue pair.
	"observe/conformance":        {"rocev2", "transport", "observe/conformance/..."},
	"observe/conformance/stage":  {"rocev2", "rocev2/mad", "transport", "transport/tap"},
	"observe/conformance/rules":  {"rocev2", "transport", "observe/conformance/stage"},
	"observe/conformance/target": {"verbs"},

	// The daemon, and what it shows.
	"observe/metrics":           {"verbs"},
	"cmd/rocev2d/server/config": {"rdma/secure", "qp/cc", "hca/strict", "internal/closest", "internal/regular", "internal/tlsfiles", "internal/tomllines"},
	"cmd/rocev2d/server/web":    {},
	"cmd/rocev2d/server":        {"internal/loglimit", "internal/regular", "verbs", "memreg/mapping", "rdma", "rdma/cm", "rdma/secure", "transport/tap", "transport/guard", "transport/keychannel", "observe/metrics", "observe/conformance/target", "programs", "transport/owner", "programs/interop/...", "cmd/rocev2d/server/..."},

	"e2e/...":  {"verbs", "internal/debian", "e2e/..."},
	"e2e/soak": {"programs", "rdma", "verbs", "transport/udp", "transport/fault"},
	// The attacker forges packets, and attacks a queue pair without a
	// device, too.
	"e2e/attack": {"e2e/attack/strangers", "verbs", "rdma/secure", "rocev2", "transport", "transport/udp", "fabric", "rocev2/clock", "ib", "memreg", "qp/...", "programs/uverbs", "programs/uverbs/..."},
	// Floods at processes, and honest peers beside them.
	"e2e/attack/strangers": {"e2e/attack/victim", "verbs", "rocev2", "rocev2/mad", "rdma/cm", "rdma", "rdma/rdmanet/rsocket"},
	// The owner of a port, and those that lease of it.
	"e2e/attack/leases": {"e2e/attack", "e2e/attack/victim", "verbs", "rocev2", "rocev2/mad", "rdma", "transport/lease", "transport"},
	"examples/...":      {"verbs", "verbs/verbstest", "rdma/cm", "rdma", "rdma/rdmanet", "fabric", "fabric/event", "fabric/topology", "fabric/worldtest", "transport/..."},
	"internal/...":      {},

	"internal/testcable": {"transport"},
	"internal/tlsfiles":  {"rdma/secure", "internal/regular"},
	"internal/testforge": {"verbs", "rdma/cm", "rocev2/mad"},

	"internal/pathlength/walk": {"verbs"},

	"internal/devices": {"verbs", "hca/task", "internal/ifaddrs"}, // for what dials and listens
}

// pure packages hold no goroutine, lock, clock, socket or log: time and
// randomness are parameters.
var pure = []string{"rocev2/clock", "internal/heap", "internal/list", "internal/counters", "internal/tomllines", "rocev2", "rocev2/layers", "rocev2/mad", "rocev2/psp", "observe/dissect", "ib", "memreg", "transport", "hca/engine", "hca/wake",
	"qp", "qp/queue", "qp/cc", "qp/trace", "qp/conn", "qp/requester", "qp/responder", "qp/datagram",
	"fabric/event", "fabric/network", "fabric/switches", "fabric/adapter", "fabric/tcp", "fabric/topology", "fabric/traffic", "fabric/traffic/tracefile", "fabric/traffic/chakra", "fabric/record", "fabric/report", "fabric/replay", "fabric/world/frames",
	"rdma/cm/agent", "transport/owner/relay", "rdma/rdmanet/rsocket", "programs/uverbs/abi", "programs/uverbs/ring", "programs/ucma/abi"}

// bannedImports are what a pure package (tests excepted) never imports.
var bannedImports = []string{
	"os", "sync", "log", "log/slog", "math/rand", "math/rand/v2", "syscall", "context",
	"golang.org/x/sys/unix",
	"golang.org/x/sys/windows",
}

// bannedCalls are functions of package time that read or wait for a clock.
var bannedCalls = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// allowedOfNet is what a pure package may use of package net: no sockets, only
// the error that says that something is closed.
var allowedOfNet = []string{"ErrClosed"}

// onlyIn names outside packages that just some rooms may import.
var onlyIn = map[string][]string{
	"github.com/google/gopacket":                     {"rocev2/layers", "internal/captures", "e2e/..."},
	"github.com/prometheus/client_golang":            {"observe/metrics"},
	"github.com/BurntSushi/toml":                     {"cmd/rocev2d/server/config", "fabric/lab"},
	"google.golang.org/protobuf":                     {"fabric/traffic/chakra"}, // its wire format
	"github.com/spf13/cobra":                         {"cmd/describe", "cmd/rocev2", "cmd/rocev2d"},
	"golang.org/x/sys/unix":                          {"cmd/rocev2/top", "programs", "programs/adapter", "programs/uverbs", "transport/udp", "transport/shm", "transport/guard", "transport/lease", "transport/owner", "memreg/mapping", "hca", "e2e/...", "cmd/rocev2", "cmd/rocev2d", "observe/doctor/...", "internal/debian", "internal/testnet", "internal/isolated", "internal/userdir", "internal/sockfilter", "internal/dontfrag"},
	"golang.org/x/sys/windows":                       {"internal/dontfrag", "memreg/mapping"},
	"github.com/gosoftroce/rocev2/rocev2/layers":     {"e2e/..."},
	"github.com/gosoftroce/rocev2/qp/qptest":         {},
	"github.com/gosoftroce/rocev2/internal/layering": {},
}

type pkg struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

// modules are the directories of the modules whose imports have rules.
var modules = []string{filepath.Join("..", ".."), filepath.Join("..", "..", "e2e")}

func listPackages(t *testing.T) (all []pkg) {
	t.Helper()
	for _, dir := range modules {
		all = append(all, packagesIn(t, dir)...)
	}
	return all
}

// packagesIn returns the packages of the module of a directory.
func packagesIn(t *testing.T, dir string) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports", "./...")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var pkgs []pkg
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatalf("go list printed something that is not JSON: %v", err)
		}
		pkgs = append(pkgs, p)
	}
}

// matches reports whether a package path (relative to the module, or a foreign
// import path) fits one of the patterns: a name, "name/...", or "*".
func matches(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if p == "*" || p == name {
			return true
		}
		root, ok := strings.CutSuffix(p, "/...")
		return ok && (name == root || strings.HasPrefix(name, root+"/"))
	})
}

func rulesFor(name string) ([]string, bool) {
	if r, ok := layers[name]; ok {
		return r, true
	}
	for pattern, r := range layers {
		if strings.HasSuffix(pattern, "/...") && matches(name, []string{pattern}) {
			return r, true
		}
	}
	return nil, false
}

func TestImportsRunDownward(t *testing.T) {
	t.Parallel()
	pkgs := listPackages(t)
	if len(pkgs) < 5 {
		t.Fatalf("go list found %d packages: the test does not see the tree", len(pkgs))
	}
	for _, p := range pkgs {
		for _, problem := range importProblems(p) {
			t.Error(problem)
		}
	}
}

func importProblems(p pkg) []string {
	rel := strings.TrimPrefix(p.ImportPath, module+"/")
	allowed, ok := rulesFor(rel)
	if !ok {
		return []string{fmt.Sprintf("package %s has no rule: say in layers what it may import", rel)}
	}
	var problems []string
	for _, imp := range p.Imports {
		if own, ok := strings.CutPrefix(imp, module+"/"); ok && !matches(own, allowed) {
			problems = append(problems, fmt.Sprintf("%s imports %s; it may import only %v", rel, own, allowed))
		}
		for foreign, rooms := range onlyIn {
			if matches(imp, []string{foreign, foreign + "/..."}) && !matches(rel, rooms) {
				problems = append(problems, fmt.Sprintf("%s imports %s, which belongs to %v", rel, imp, rooms))
			}
		}
		if slices.Contains(pure, rel) && slices.Contains(bannedImports, imp) {
			problems = append(problems, fmt.Sprintf("%s is pure and imports %s", rel, imp))
		}
	}
	return problems
}

// TestPurePackagesArePure looks at the source of the pure packages for
// goroutines, sockets, and calls that read a clock.
func TestPurePackagesArePure(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, p := range listPackages(t) {
		if !slices.Contains(pure, strings.TrimPrefix(p.ImportPath, module+"/")) {
			continue
		}
		seen++
		for _, name := range p.GoFiles {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range impurities(fset, f) {
				t.Error(problem)
			}
		}
	}
	if seen != len(pure) {
		t.Errorf("saw %d of the %d pure packages", seen, len(pure))
	}
}

func impurities(fset *token.FileSet, f *ast.File) []string {
	var problems []string
	names := importNames(f)
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			problems = append(problems, fmt.Sprintf("%s: a pure package starts a goroutine", fset.Position(n.Pos())))
		case *ast.SelectorExpr:
			id, _ := n.X.(*ast.Ident)
			switch {
			case id == nil:
			case names[id.Name] == "time" && slices.Contains(bannedCalls, n.Sel.Name):
				problems = append(problems, fmt.Sprintf("%s: a pure package uses time.%s; time is a parameter", fset.Position(n.Pos()), n.Sel.Name))
			case names[id.Name] == "net" && !slices.Contains(allowedOfNet, n.Sel.Name):
				problems = append(problems, fmt.Sprintf("%s: a pure package uses net.%s", fset.Position(n.Pos()), n.Sel.Name))
			}
		}
		return true
	})
	return problems
}

// importNames returns what the imports of f are called in it.
func importNames(f *ast.File) map[string]string {
	names := map[string]string{}
	for _, spec := range f.Imports {
		imp := strings.Trim(spec.Path.Value, `"`)
		name := path.Base(imp)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = imp
	}
	return names
}

// TestTheChecksCanFail feeds the rules what they forbid.
func TestTheChecksCanFail(t *testing.T) {
	t.Parallel()
	for _, p := range []pkg{
		{ImportPath: module + "/qp", Imports: []string{module + "/transport"}},
		{ImportPath: module + "/qp", Imports: []string{"sync"}},
		{ImportPath: module + "/rocev2", Imports: []string{"github.com/google/gopacket/layers"}},
		{ImportPath: module + "/unheardof"},
	} {
		if len(importProblems(p)) == 0 {
			t.Errorf("%s importing %v passes", p.ImportPath, p.Imports)
		}
	}
	for text, want := range map[string]int{
		`import "time"; func f() { go f(); _ = time.Now() }`:           2,
		`import clock "time"; func f() { _ = clock.Now() }`:            1,
		`import "net"; var _ = net.Listen`:                             1,
		`import "net"; var _ = net.ErrClosed`:                          0,
		`import "net/netip"; var _ netip.Addr`:                         0,
		`import "time"; const second = time.Second`:                    0,
		`type t struct{ Now int }; func (time t) f() { _ = time.Now }`: 0,
	} {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "x.go", "package x; "+text, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := impurities(fset, f); len(got) != want {
			t.Errorf("%s gives %q, want %d problems", text, got, want)
		}
	}
}
