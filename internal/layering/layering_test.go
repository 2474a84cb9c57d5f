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
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/gosoftroce/rocev2"

// layers says, for every package of the product, which packages of this module
// it may import. A package that is not listed fails the test: whoever adds a
// room says here what it may touch.
var layers = map[string][]string{
	"rocev2":        {},
	"rocev2/layers": {"rocev2"},

	"clock": {},
	"ib":    {"rocev2"},

	"memreg":         {"rocev2", "ib"},
	"memreg/mapping": {"ib", "memreg"},

	"qp":        {"clock", "rocev2", "ib", "memreg"},
	"qp/qptest": {"clock", "rocev2", "ib", "memreg", "qp"},

	"transport":       {"rocev2"},
	"transport/udp":   {"rocev2", "transport"},
	"transport/fault": {"rocev2", "transport"},
	"transport/tap":   {"rocev2", "transport"},

	"fabric": {"rocev2", "transport"},

	"hca": {"clock", "rocev2", "ib", "memreg", "qp", "transport", "transport/udp", "fabric"},

	"verbs": {"rocev2", "ib", "memreg", "memreg/mapping", "qp", "transport", "transport/udp", "hca"},

	"verbs/verbstest": {"verbs", "fabric"}, // imports testing: for tests only

	"interop/internal/testpair": {"verbs", "verbs/verbstest"},

	// Programs import verbs, and a kind of link where they want another one. What
	// is below verbs (ib, memreg, qp, hca) is not theirs.
	"interop/...": {"verbs", "interop/..."},
	"cmd/...":     {"verbs", "transport/...", "interop/...", "cmd/..."},
	"e2e/...":     {"verbs", "e2e/..."},
	// The attacker forges packets, and attacks a queue pair without a device, too.
	"e2e/attack":   {"verbs", "rocev2", "transport", "transport/udp", "fabric", "clock", "ib", "memreg", "qp/..."},
	"examples/...": {"verbs", "verbs/verbstest", "fabric", "transport/..."},
	"internal/...": {},
}

// pure packages hold no goroutine, lock, clock, socket or log: time and
// randomness are parameters.
var pure = []string{"clock", "rocev2", "ib", "memreg", "qp"}

// bannedImports are what a pure package (tests excepted) never imports.
var bannedImports = []string{
	"net", "os", "sync", "log", "log/slog", "math/rand", "math/rand/v2", "syscall", "context",
	"golang.org/x/sys/unix",
	"golang.org/x/sys/windows",
}

// bannedCalls are functions of package time that read or wait for a clock.
var bannedCalls = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// onlyIn names outside packages that just some rooms may import.
var onlyIn = map[string][]string{
	"github.com/google/gopacket":                     {"rocev2/layers", "transport/tap", "e2e/..."},
	"github.com/prometheus/client_golang":            {"metrics"},
	"github.com/spf13/cobra":                         {"cmd/..."},
	"golang.org/x/sys/unix":                          {"transport/udp", "memreg/mapping", "hca", "e2e/...", "cmd/...", "internal/testnet"},
	"golang.org/x/sys/windows":                       {"transport/udp", "memreg/mapping"},
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

func listPackages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports", module+"/...")
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

// matches says whether a package path (relative to the module, or a foreign
// import path) fits one of the patterns: a name, "name/...", or "*".
func matches(path string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if p == "*" || p == path {
			return true
		}
		root, ok := strings.CutSuffix(p, "/...")
		return ok && (path == root || strings.HasPrefix(path, root+"/"))
	})
}

func rulesFor(path string) ([]string, bool) {
	if r, ok := layers[path]; ok {
		return r, true
	}
	for pattern, r := range layers {
		if strings.HasSuffix(pattern, "/...") && matches(path, []string{pattern}) {
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

// TestPurePackagesReadNoClock looks at the source of the pure packages for
// goroutines and for calls that read a clock.
func TestPurePackagesReadNoClock(t *testing.T) {
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
			for _, problem := range clockProblems(fset, f) {
				t.Error(problem)
			}
		}
	}
	if seen != len(pure) {
		t.Errorf("saw %d of the %d pure packages", seen, len(pure))
	}
}

func clockProblems(fset *token.FileSet, f *ast.File) []string {
	var problems []string
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			problems = append(problems, fmt.Sprintf("%s: a pure package starts a goroutine", fset.Position(n.Pos())))
		case *ast.SelectorExpr:
			if id, ok := n.X.(*ast.Ident); ok && id.Name == "time" && slices.Contains(bannedCalls, n.Sel.Name) {
				problems = append(problems, fmt.Sprintf("%s: a pure package uses time.%s; time is a parameter", fset.Position(n.Pos()), n.Sel.Name))
			}
		}
		return true
	})
	return problems
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
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "x.go", "package x\nimport \"time\"\nfunc f() { go f(); _ = time.Now() }\n", 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := clockProblems(fset, f); len(got) != 2 {
		t.Errorf("a goroutine and a clock give %v", got)
	}
}
