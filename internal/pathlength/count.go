// Package pathlength counts the functions of this module that a message passes:
// an RDMA WRITE of 8 bytes between two programs that poll, from the post to the
// system call that sends it, at the peer from the one that receives it to the
// acknowledgement, and from that to the completion.
//
// A length that grows is read before it is believed to be needed: each function
// is something that a reader of the path has to hold in mind, and most of what
// a small message costs is code that asks what the code before has asked.
//
//	go test -v -run TestPath ./internal/pathlength
package pathlength

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/gosoftroce/rocev2"

// length is what a part of the way takes.
type length struct {
	functions map[string]int // calls of each, by file and name
	rounds    int            // of which each had them
}

func (l *length) calls() (n int) {
	for _, c := range l.functions {
		n += c
	}
	return n
}

func (l *length) files() int {
	files := map[string]bool{}
	for f := range l.functions {
		file, _, _ := strings.Cut(f, ":")
		files[file] = true
	}
	return len(files)
}

// The files that a part of the way passes; in a round without them another
// goroutine of the device has done the part, or some of it.
const (
	sends    = "transport/udp/send_linux.go"
	receives = "hca/engine/receive.go"
)

var passes = [3][]string{{sends}, {receives, sends}, {receives}}

// has reports whether each of some files had a call.
func (l *length) has(files []string) bool {
	for _, file := range files {
		found := false
		for f := range l.functions {
			found = found || strings.HasPrefix(f, file+":")
		}
		if !found {
			return false
		}
	}
	return true
}

// measure builds the walk with counters, runs it, and returns the length of
// each part: what the rounds that did all of it have in common. In some another
// goroutine of a device does something at the same time, or a window grows.
func measure(ctx context.Context, root, temp string) ([3]length, error) {
	var parts [3]length
	walk, data := filepath.Join(temp, "walk"), filepath.Join(temp, "data")
	for _, c := range []*exec.Cmd{
		exec.CommandContext(ctx, "go", "build", "-cover", "-covermode=atomic", "-coverpkg="+module+"/...", "-o", walk, "./internal/pathlength/walk"),
		exec.CommandContext(ctx, walk, data),
	} {
		c.Dir, c.Env = root, append(os.Environ(), "GOCOVERDIR="+temp)
		if out, err := c.CombinedOutput(); err != nil {
			return parts, fmt.Errorf("%s: %w\n%s", c, err, out)
		}
	}
	names := functions{root: root, at: map[string]map[string]string{}}
	for i := range parts {
		rounds, err := filepath.Glob(filepath.Join(data, strconv.Itoa(i), "*"))
		if err != nil {
			return parts, err
		}
		all := make([]length, len(rounds))
		for j, dir := range rounds {
			if all[j], err = names.read(dir); err != nil {
				return parts, err
			}
		}
		all = slices.DeleteFunc(all, func(l length) bool { return !l.has(passes[i]) })
		parts[i] = common(all)
	}
	return parts, nil
}

// common returns the functions that all rounds have passed. The calls are those
// of the shortest.
func common(all []length) length {
	if len(all) == 0 {
		return length{}
	}
	slices.SortStableFunc(all, func(a, b length) int { return len(a.functions) - len(b.functions) })
	l := all[0]
	l.rounds = len(all)
	for _, other := range all[1:] {
		maps.DeleteFunc(l.functions, func(name string, _ int) bool { return other.functions[name] == 0 })
	}
	return l
}

// functions finds names by where functions begin.
type functions struct {
	root string
	at   map[string]map[string]string // by file, then by line and column of the body
}

// read returns the functions that were called between the two moments that the
// counters of a directory are of.
func (f *functions) read(dir string) (l length, err error) {
	text := filepath.Join(dir, "text")
	if out, err := exec.Command("go", "tool", "covdata", "textfmt", "-i="+dir, "-o="+text).CombinedOutput(); err != nil {
		return l, fmt.Errorf("go tool covdata: %w\n%s", err, out)
	}
	b, err := os.ReadFile(text)
	if err != nil {
		return l, err
	}
	l.functions = map[string]int{}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		// FILE:LINE.COLUMN,LINE.COLUMN STATEMENTS COUNT
		line := lines.Text()
		file, rest, ok := strings.Cut(line, ".go:")
		begin, counts, _ := strings.Cut(rest, ",")
		count, err := strconv.Atoi(counts[strings.LastIndexByte(counts, ' ')+1:])
		if !ok || err != nil || count == 0 || strings.HasPrefix(file, module+"/internal/pathlength/") {
			continue
		}
		file = strings.TrimPrefix(file, module+"/") + ".go"
		name, err := f.name(file, begin)
		if err != nil {
			return l, err
		}
		if name != "" {
			l.functions[file+": "+name] += count
		}
	}
	return l, nil
}

// name returns the function whose body begins at a place, "" if none does.
func (f *functions) name(file, begin string) (string, error) {
	if f.at[file] == nil {
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, filepath.Join(f.root, file), nil, 0)
		if err != nil {
			return "", err
		}
		f.at[file] = map[string]string{}
		within := ""
		ast.Inspect(tree, func(n ast.Node) bool {
			var body *ast.BlockStmt
			name := within + ".func"
			switch n := n.(type) {
			case *ast.FuncDecl:
				within, body = nameOf(n), n.Body
				name = within
			case *ast.FuncLit:
				body = n.Body
			}
			if body != nil {
				at := set.Position(body.Lbrace)
				f.at[file][fmt.Sprintf("%d.%d", at.Line, at.Column)] = name
			}
			return true
		})
	}
	return f.at[file][begin], nil
}

// nameOf returns the name of a function, or of a method with its type.
func nameOf(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	switch g := t.(type) {
	case *ast.IndexExpr:
		t = g.X
	case *ast.IndexListExpr:
		t = g.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name + "." + d.Name.Name
	}
	return d.Name.Name
}

// list returns the functions with the number of their calls, most called first.
func (l *length) list() (lines []string) {
	for name := range l.functions {
		lines = append(lines, name)
	}
	slices.SortFunc(lines, func(a, b string) int {
		if d := l.functions[b] - l.functions[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for i, name := range lines {
		lines[i] = fmt.Sprintf("%4d %s", l.functions[name], name)
	}
	return lines
}
