package verbs_test

import (
	"go/ast"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// constantsOf returns the exported constants of a package without their types'
// names, by the type that the first of their group has.
func constantsOf(t *testing.T, dir string) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{}
	for _, f := range parseDir(t, dir) {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			kind := ""
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				if id, ok := v.Type.(*ast.Ident); ok {
					kind = id.Name
				} else if len(v.Values) > 0 {
					kind = ""
				}
				for _, n := range v.Names {
					if kind != "" && n.IsExported() {
						if all[kind] == nil {
							all[kind] = map[string]bool{}
						}
						all[kind][n.Name] = true
					}
				}
			}
		}
	}
	return all
}

// TestConstantsAreWhole: programs have each operation, event, state and type of
// queue pair that the core has, under the same name.
func TestConstantsAreWhole(t *testing.T) {
	t.Parallel()
	ours, theirs := constantsOf(t, "."), constantsOf(t, filepath.Join("..", "ib"))
	seen := 0
	for _, kind := range []string{"Opcode", "WCOpcode", "Event", "State", "QPType"} {
		if len(theirs[kind]) == 0 {
			t.Errorf("package ib has no constants of %s", kind)
		}
		for _, name := range slices.Sorted(maps.Keys(theirs[kind])) {
			seen++
			if !ours[kind][name] && !strings.HasPrefix(name, "Num") {
				t.Errorf("package verbs has no %s, a %s of package ib", name, kind)
			}
		}
	}
	if seen < 40 {
		t.Errorf("only %d constants were seen", seen)
	}
}
