package layering

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"strings"
	"testing"
)

// secretName is what fields with key material are called.
var secretName = regexp.MustCompile(`(?i)(key|secret|master)s?$`)

// noSecrets are folders whose keys are none of cryptography.
var noSecrets = []string{"fabric/"}

// TestSecretsAreNotShown checks that no struct with key material can be printed
// or written as JSON: it has a method Format, of the value, which package fmt
// calls in place of looking into it, and its exported fields are not of JSON.
func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	found, problems := shownSecrets(tree(t))
	for _, p := range problems {
		t.Error(p)
	}
	if found < 4 {
		t.Errorf("saw %d structs with key material", found)
	}
}

// shownSecrets returns how many structs have key material, and what is wrong
// with them.
func shownSecrets(files []source) (found int, problems []string) {
	formats := map[string]bool{} // folder and type
	for _, s := range files {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || f.Name.Name != "Format" || len(f.Type.Params.List) != 2 {
				continue
			}
			if id, ok := f.Recv.List[0].Type.(*ast.Ident); ok { // of a value
				formats[path.Dir(s.path)+" "+id.Name] = true
			}
		}
	}
	for _, s := range files {
		if s.isTest() || hasPrefix(s.path, noSecrets) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			body, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			fields := secretFields(body)
			if len(fields) == 0 {
				return true
			}
			found++
			if !formats[path.Dir(s.path)+" "+spec.Name.Name] {
				problems = append(problems, fmt.Sprintf("%s:%d: %s has key material, and no method Format(fmt.State, rune) of the value that keeps it out of what is printed",
					s.path, s.line(spec.Pos()), spec.Name.Name))
			}
			for _, f := range fields {
				if f.Names[0].IsExported() && (f.Tag == nil || !strings.Contains(f.Tag.Value, `json:"-"`)) {
					problems = append(problems, fmt.Sprintf("%s:%d: %s.%s is key material, and package json writes it: tag it `json:\"-\"`",
						s.path, s.line(f.Pos()), spec.Name.Name, f.Names[0].Name))
				}
			}
			return true
		})
	}
	return found, problems
}

func hasPrefix(name string, folders []string) bool {
	for _, f := range folders {
		if strings.HasPrefix(name, f) {
			return true
		}
	}
	return false
}

// secretFields returns the fields of a struct that have key material.
func secretFields(body *ast.StructType) (list []*ast.Field) {
	for _, f := range body.Fields.List {
		for _, name := range f.Names {
			if isCipher(f.Type) || secretName.MatchString(name.Name) && isBytes(f.Type) {
				list = append(list, f)
				break
			}
		}
	}
	return list
}

// isBytes reports whether a type is bytes: a slice, an array, or a pointer to
// one.
func isBytes(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.StarExpr:
		return isBytes(e.X)
	case *ast.ArrayType:
		id, ok := e.Elt.(*ast.Ident)
		return ok && (id.Name == "byte" || id.Name == "uint8") || isBytes(e.Elt)
	}
	return false
}

// isCipher reports whether a type is one of package cipher, or has them.
func isCipher(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.StarExpr:
		return isCipher(e.X)
	case *ast.ArrayType:
		return isCipher(e.Elt)
	case *ast.SelectorExpr:
		id, ok := e.X.(*ast.Ident)
		return ok && id.Name == "cipher"
	}
	return false
}

// TestShownSecretsAreFound: the test above can fail.
func TestShownSecretsAreFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"type a struct { key []byte }": 1, "type a struct { Secret *[32]byte }": 2, "type a struct { x cipher.AEAD }": 1, "type a struct { x [2]cipher.Block }": 1,
		"type a struct { keys [2][]byte }": 1, "type a struct { key uint32; text []byte; monkeys int }": 0,
		"type a struct { key []byte }\nfunc (a) Format(s fmt.State, r rune) {}":              0,
		"type a struct { Key []byte `json:\"-\"` }\nfunc (a) Format(s fmt.State, r rune) {}": 0,
		"type a struct { Key []byte }\nfunc (a) Format(s fmt.State, r rune) {}":              1,
		"type a struct { key []byte }\nfunc (*a) Format(s fmt.State, r rune) {}":             1,
	} {
		s, err := parse("x/x.go", []byte("package x\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		if _, got := shownSecrets([]source{s}); len(got) != want {
			t.Errorf("%s: %d problems, want %d: %v", text, len(got), want, got)
		}
	}
}
