package release

import (
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

// spread writes the files of this processor's archive into a folder.
func spread(t *testing.T, release string, p Platform) (dir string) {
	t.Helper()
	archive := archives(t, release)[p]
	if archive == "" {
		t.Skipf("the release has no archive for %s", p)
	}
	dir = t.TempDir()
	for name, f := range unpacked(t, archive) {
		if err := os.MkdirAll(filepath.Join(dir, path.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), f.text, f.mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var here = Platform{"linux", runtime.GOARCH}

// runsArm64 runs the programs for arm64 on an emulated processor, and has them
// talk with those of this one.
func runsArm64(t *testing.T, release string) {
	if runtime.GOARCH == "arm64" {
		t.Skip("this is an arm64 machine: the other tests run the programs")
	}
	tool(t, "qemu-aarch64-static", "qemu-user-static")
	dir := spread(t, release, Platform{"linux", "arm64"})
	t.Run("version", func(t *testing.T) {
		for _, name := range commands {
			out := outputOf(t, dir, "qemu-aarch64-static", "./"+name, "--version")
			for _, want := range []string{name + " v", "commit ", "date 20", "linux/arm64", "ICRC by "} {
				if !strings.Contains(out, want) {
					t.Errorf("%s --version does not say %q:\n%s", name, want, out)
				}
			}
		}
	})
	// A namespace of its own has the port.
	namespace := []string{"--net", "sh", "-ec"}
	t.Run("demo", func(t *testing.T) {
		tool(t, "proot", "proot") // the demo starts itself
		out := outputOf(t, dir, "unshare", append(namespace, "ip link set lo up; proot -q qemu-aarch64-static ./rocev2 demo --rates 0")...)
		if !strings.Contains(out, "All 13 operations did what they should") {
			t.Errorf("the demo says\n%s", out)
		}
	})
	t.Run("peers", func(t *testing.T) {
		native := spread(t, release, here)
		script := `ip link set lo up
			qemu-aarch64-static ./rocev2 rping -s -a 127.0.0.1 -C 100 > server 2>&1 & server=$!
			while ! grep -q waiting server; do kill -0 $server; sleep 0.1; done
			"$0"/rocev2 rping -c -a 127.0.0.1 -I 127.0.0.2 -C 100 -V
			wait $server`
		outputOf(t, dir, "unshare", append(namespace, script, native)...)
	})
}

// The schema of CycloneDX comes with a module, which no program needs.
const schemaModule = "github.com/CycloneDX/cyclonedx-go@v0.9.2"

const validate = `
import json, sys, jsonschema
folder, files = sys.argv[1], sys.argv[2:]
load = lambda name: json.load(open(name))
schema = load(folder + "/bom-1.5.schema.json")
store = {"http://cyclonedx.org/schema/spdx.schema.json": load(folder + "/spdx.schema.json")}
# Nothing is signed: what signatures look like is not in the module.
store["http://cyclonedx.org/schema/jsf-0.82.schema.json"] = {"definitions": {"signature": {}}}
check = jsonschema.Draft7Validator(schema, jsonschema.RefResolver.from_schema(schema, store=store), jsonschema.draft7_format_checker)
for name in files:
    for e in check.iter_errors(load(name)):
        print(name, "/".join(map(str, e.path)), e.message)
`

// hasMaterials validates the bills of materials.
func hasMaterials(t *testing.T, release string) {
	tool(t, "python3", "python3")
	if err := exec.CommandContext(t.Context(), "python3", "-c", "import jsonschema").Run(); err != nil {
		t.Skip("python3 has no jsonschema (on Debian: apt-get install python3-jsonschema)")
	}
	boms, err := filepath.Glob(filepath.Join(release, "*.cdx.json"))
	if err != nil || len(boms) != len(archives(t, release)) {
		t.Fatalf("bills of materials: %q, %v", boms, err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", schemaModule)
	cmd.Dir = t.TempDir() // no module
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("the schema is not to be had: go mod download %s: %v", schemaModule, err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-W", "ignore", "-c", validate, filepath.Join(module.Dir, "schema")}, boms...)
	if out := outputOf(t, "", "python3", args...); out != "" {
		t.Errorf("bills of materials do not fit the schema:\n%s", out)
	}
}

var reference = regexp.MustCompile(`\b(rocev2[a-z0-9_.-]*)(?:\\fP|\\fR)?\((\d)\)`)

func hasPages(t *testing.T, release string) {
	checkPages(t, filepath.Join(spread(t, release, here), "man"))
}

// checkPages checks manual pages: no warnings, and the pages that they name.
func checkPages(t *testing.T, dir string) {
	pages, err := filepath.Glob(filepath.Join(dir, "man*", "*"))
	if err != nil || len(pages) < 40 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range reference.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(dir, "man"+m[2], m[1]+"."+m[2])); err != nil {
				t.Errorf("%s refers to %s(%s), which is not there", filepath.Base(page), m[1], m[2])
			}
		}
	}
	t.Run("mandoc", func(t *testing.T) {
		tool(t, "mandoc", "mandoc")
		outputOf(t, dir, "mandoc", append([]string{"-T", "lint", "-W", "warning"}, pages...)...)
	})
	t.Run("groff", func(t *testing.T) {
		tool(t, "groff", "groff")
		for _, page := range pages {
			if out := outputOf(t, dir, "sh", "-c", `groff -t -man -ww -T utf8 -K utf8 -rLL=80n "$0" 2>&1 > /dev/null`, page); out != "" {
				t.Errorf("%s: %s", filepath.Base(page), out)
			}
		}
	})
}

// The pages of this tree are in order, without a release.
func TestManual(t *testing.T) {
	t.Parallel()
	s := &source{dir: repository(t), date: time.Unix(1<<30, 0)}
	said, err := s.describe(t.Context(), Platform{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pages, _, err := s.shared("1.2.3", said)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range pages {
		folder := filepath.Join(dir, "man"+section(name))
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	checkPages(t, dir)
}

func repository(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// hasCompletions has the shells read their scripts, and bash complete a word.
func hasCompletions(t *testing.T, release string) {
	dir := spread(t, release, here)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			tool(t, shell, shell)
			for _, name := range commands {
				outputOf(t, filepath.Join(dir, "completions", shell), shell, "-n", name)
			}
		})
	}
	t.Run("use", func(t *testing.T) {
		const library = "/usr/share/bash-completion/bash_completion"
		if _, err := os.Stat(library); err != nil {
			t.Skip("bash-completion is not installed (on Debian: apt-get install bash-completion)")
		}
		script := `. ` + library + `; PATH=$PWD:$PATH; . completions/bash/rocev2
			COMP_WORDS=(rocev2 perf write_b); COMP_CWORD=2; COMP_LINE="rocev2 perf write_b"; COMP_POINT=${#COMP_LINE}
			compopt() { :; } # not called by the shell here
			__start_rocev2 rocev2 write_b perf; echo "${COMPREPLY[@]}"`
		if out := outputOf(t, dir, "bash", "-c", script); !strings.HasPrefix(out, "write_bw") {
			t.Errorf("bash completes write_b to %q", out)
		}
	})
}
