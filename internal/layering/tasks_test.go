package layering

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// simulated packages run over sockets and in package fabric/world. Goroutines,
// the time and waiting they have of package task.
var simulated = []string{"rdma/cm", "programs/interop/perftest", "programs/interop/pingpong", "programs/interop/internal/work", "programs/interop/internal/control", "programs/interop/internal/lanes"}

// byChannels are files that have channels all the same: what they offer does
// not run in a world.
var byChannels = []string{"rdma/cm/channel.go"}

// bannedOf are functions of packages that start goroutines, wait, or read a
// clock.
var bannedOf = map[string][]string{
	"time":    bannedCalls,
	"context": {"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause", "AfterFunc"},
	"sync":    {"WaitGroup", "NewCond", "Cond"},
}

// TestSimulatedPackagesTakeTheirTime looks at the source of the packages that
// run in a world for what would run beside it.
func TestSimulatedPackagesTakeTheirTime(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, p := range listPackages(t) {
		if !slices.Contains(simulated, strings.TrimPrefix(p.ImportPath, module+"/")) {
			continue
		}
		seen++
		for _, name := range p.GoFiles {
			if slices.Contains(byChannels, strings.TrimPrefix(p.ImportPath, module+"/")+"/"+name) {
				continue
			}
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range ownTime(fset, f) {
				t.Error(problem)
			}
		}
	}
	if seen != len(simulated) {
		t.Errorf("saw %d of the %d packages that run in a world", seen, len(simulated))
	}
}

func ownTime(fset *token.FileSet, f *ast.File) []string {
	var problems []string
	names := importNames(f)
	bad := func(n ast.Node, what string) {
		problems = append(problems, fmt.Sprintf("%s: %s; package task has what runs in a world, too", fset.Position(n.Pos()), what))
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			bad(n, "a goroutine")
		case *ast.SelectStmt:
			bad(n, "a select")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				bad(n, "a channel is read")
			}
		case *ast.SelectorExpr:
			if id, ok := n.X.(*ast.Ident); ok && slices.Contains(bannedOf[names[id.Name]], n.Sel.Name) {
				bad(n, id.Name+"."+n.Sel.Name)
			}
		}
		return true
	})
	return problems
}

// TestTheCheckOfTasksCanFail feeds it what it forbids.
func TestTheCheckOfTasksCanFail(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		`import "time"; func f() { go f(); _ = time.Now() }`:                     2,
		`import "context"; func f() { context.WithTimeout(nil, 0) }`:             1,
		`import "sync"; var w sync.WaitGroup; var m sync.Mutex`:                  1,
		`func f(c chan int) { <-c }`:                                             1,
		`func f(c chan int) { select { case c <- 1: default: } }`:                1,
		`import "time"; const d = time.Second; func f(t time.Time) { t.Sub(t) }`: 0,
	} {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "x.go", "package x; "+text, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := ownTime(fset, f); len(got) != want {
			t.Errorf("%s: %d problems, want %d: %v", text, len(got), want, got)
		}
	}
}
