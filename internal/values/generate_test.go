package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The files of package verbs are what the packages below have today.
func TestUpToDate(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	all, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	there, err := filepath.Glob(filepath.Join(root, "verbs", "values_*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range there {
		if all[filepath.Base(path)] == nil {
			t.Errorf("%s is not of this program any more: remove it", path)
		}
	}
	for name, want := range all {
		got, err := os.ReadFile(filepath.Join(root, "verbs", name))
		if err != nil {
			t.Error(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("verbs/%s is not up to date: run go generate ./verbs", name)
		}
	}
}

// What a reader of package verbs sees names no other package, and leaves
// nothing out.
func TestReadsAsOnePackage(t *testing.T) {
	t.Parallel()
	all, err := generate(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	foreign := regexp.MustCompile(`\b(ib|hca|conn|rocev2|memreg)\.[A-Z]|of package verbs|missing: `)
	for name, text := range all {
		for i, line := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "//") && foreign.MatchString(line) {
				t.Errorf("%s:%d: %s", name, i+1, line)
			}
		}
	}
	text := string(all["values_requests.go"])
	for _, want := range []string{"\t// OpWrite writes", "//\t\tSGList []SGE\n", "//\tfunc (h *AddressHandle) Close() error\ntype", "[QP.PostSend]"} {
		if !strings.Contains(text, want) {
			t.Errorf("values_requests.go has no %q", want)
		}
	}
}

// A type that is not there is an error, and no constant is there twice.
func TestMissingAndDoubled(t *testing.T) {
	t.Parallel()
	g := &generator{root: filepath.Join("..", ".."), parsed: map[string]*source{}}
	if _, err := g.file(file{"x", []value{{pkg: "ib", name: "Nothing"}}}); err == nil {
		t.Error("a type that is not there passes")
	}
	all, err := generate(g.root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, text := range all {
		for _, m := range regexp.MustCompile(`(?m)^\t([A-Z]\w*) +\w+ += `).FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
	}
	slices.Sort(names)
	if n := len(names); n < 100 || len(slices.Compact(names)) != n {
		t.Errorf("%d constants, some of them twice", n)
	}
}
