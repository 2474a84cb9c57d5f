package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/programs"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var flagOf = regexp.MustCompile(`--([a-z][a-z-]*)`)

// checkFlags looks for the flags of calls of the daemon in a text.
func checkFlags(t *testing.T, name, text string) {
	t.Helper()
	flags := (&program{}).command().Flags()
	seen := 0
	for line := range strings.Lines(text) {
		_, call, ok := strings.Cut(line, "rocev2d --")
		if !ok {
			continue
		}
		call, _, _ = strings.Cut(call, ">")
		for _, m := range flagOf.FindAllStringSubmatch("--"+call, -1) {
			if seen++; flags.Lookup(m[1]) == nil {
				t.Errorf("%s: the daemon has no flag --%s", name, m[1])
			}
		}
	}
	if seen == 0 {
		t.Errorf("%s: no call of the daemon found", name)
	}
}

const unitFile = "packaging/rocev2d.service"

// settingsOf returns the settings of a file of systemd, and their last values.
func settingsOf(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			m[name] = value
		}
	}
	return m
}

// The unit has no privileges, and calls the daemon with flags that there are.
func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	unit := read(t, unitFile)
	checkFlags(t, "the unit", unit)
	set := settingsOf(unit)
	for name, want := range map[string]string{"User": "rocev2", "NoNewPrivileges": "yes", "CapabilityBoundingSet": "", "AmbientCapabilities": "", "Type": "notify"} {
		if got, ok := set[name]; !ok || got != want {
			t.Errorf("the unit has %s=%s, want %q", name, got, want)
		}
	}
	if set["ExecReload"] == "" {
		t.Error("the unit lacks ExecReload")
	}
}

// The unit makes the directory where programs look for the daemon, and members
// of its group may enter it. The documents say the same.
func TestSystemdUnitServesPrograms(t *testing.T) {
	t.Parallel()
	set := settingsOf(read(t, unitFile))
	if dir := "/run/" + set["RuntimeDirectory"]; dir != programsDir || set["RuntimeDirectoryMode"] != "0750" || set["Group"] != "rocev2" {
		t.Errorf("the unit makes %s with the mode %s; programs look in %s", dir, set["RuntimeDirectoryMode"], programsDir)
	}
	for _, doc := range []string{"docs/operations.md", "docs/programs.md", "docs/install.md"} {
		text := read(t, doc)
		for _, want := range []string{"rocev2d.service`", programsDir} {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say `%s`", doc, want)
			}
		}
	}
	if text := read(t, "docs/programs.md"); !strings.Contains(text, "directory = \""+programsDir+"\"") {
		t.Errorf("docs/programs.md configures another directory than %s", programsDir)
	}
	c := config.Default()
	if err := c.Parse("programs.md", "[programs]\ndirectory = \""+programsDir+"\"\n"); err != nil {
		t.Error(err)
	}
}

// The configuration of the packages has no mistake but that there is no such
// group here, and serves programs of the unit's group in the unit's directory.
func TestPackagedConfiguration(t *testing.T) {
	t.Parallel()
	c := config.Default()
	if err := c.Parse("rocev2d.toml", read(t, "packaging/system/rocev2d.toml")); err != nil {
		t.Fatal(err)
	}
	group := settingsOf(read(t, unitFile))["Group"]
	if p := c.Programs; p.Dir != programsDir || !slices.Equal(p.Groups, []string{group}) || p.Any || len(p.Users) > 0 {
		t.Errorf("programs of the package's configuration: %+v, want the group %s alone", p, group)
	}
	if !strings.Contains(read(t, "packaging/system/rocev2.sysusers"), "\nu "+group+" ") {
		t.Errorf("sysusers does not make the user and the group %s", group)
	}
	c.Programs.Groups = nil // which need not be here
	if err := c.Check(); err != nil {
		t.Error(err)
	}
	for _, d := range c.Devices {
		if a, err := netip.ParseAddr(d.Address); err != nil || !a.IsLoopback() {
			t.Errorf("the package's configuration offers a device to other hosts: %s", d.Address)
		}
	}
}

// systemd takes the unit, and would find a mistake.
func TestSystemdVerifiesTheUnit(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed (on Debian: apt-get install systemd)")
	}
	path, err := binary() // what ExecStart names must be there
	if err != nil {
		t.Fatal(err)
	}
	for _, drop := range []string{"", "[Service]\nNoSuchSetting=1\n"} {
		dir := t.TempDir()
		file := filepath.Join(dir, "rocev2d.service")
		unit := strings.ReplaceAll(read(t, unitFile), "/usr/bin/rocev2d", path)
		if err := os.WriteFile(file, []byte(unit), 0o644); err != nil {
			t.Fatal(err)
		}
		if drop != "" {
			if err := os.Mkdir(file+".d", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(file+".d", "wrong.conf"), []byte(drop), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		out, err := exec.Command("systemd-analyze", "verify", "--man=no", file).CombinedOutput()
		wrong := strings.Contains(string(out), "rocev2d.service")
		if should := strings.Contains(drop, "NoSuchSetting"); wrong != should {
			t.Errorf("systemd-analyze finds a mistake: %v, want %v\n%s", wrong, should, out)
		} else if err != nil && !should {
			t.Logf("systemd-analyze: %v\n%s", err, out) // of other units of this machine
		}
	}
}

func TestContainerfile(t *testing.T) {
	t.Parallel()
	text := read(t, "packaging/Containerfile")
	checkFlags(t, "the Containerfile", text)
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))[1]
	for _, want := range []string{"golang:" + version + " ", "CGO_ENABLED=0", "FROM scratch", "USER 65532", `ENTRYPOINT ["/rocev2d"]`} {
		if !strings.Contains(text, want) {
			t.Errorf("the Containerfile lacks %q", want)
		}
	}
}

// documents parses the documents of a YAML file.
func documents(t *testing.T, text string) (list []map[string]any) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(text))
	d.SetStrict(true)
	for {
		var v map[string]any
		err := d.Decode(&v)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, v)
	}
}

// at follows keys and indexes.
func at(t *testing.T, v any, path ...any) any {
	t.Helper()
	for _, p := range path {
		switch m := v.(type) {
		case map[string]any:
			v = m[p.(string)]
		case map[any]any:
			v = m[p]
		case []any:
			v = m[p.(int)]
		default:
			t.Fatalf("nothing at %v of %v", p, path)
		}
	}
	return v
}

// The manifests parse, their configuration has no mistake, and what they name
// fits together.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	text := read(t, "packaging/kubernetes/rocev2d.yaml")
	kinds := map[string]map[string]any{}
	for _, d := range documents(t, text) {
		kinds[d["kind"].(string)] = d
		if at(t, d, "metadata", "name") != "rocev2d" {
			t.Errorf("%v has another name", d["kind"])
		}
	}
	c := config.Default()
	if err := c.Parse("ConfigMap", at(t, kinds["ConfigMap"], "data", "rocev2d.toml").(string)); err != nil {
		t.Error(err)
	}
	c.Admin.TokenFile, c.Admin.Token = "", "0123456789abcdef" // the secret is not here
	if err := c.Check(); err != nil {
		t.Error(err)
	}
	container := at(t, kinds["Deployment"], "spec", "template", "spec", "containers", 0)
	flags := (&program{}).command().Flags()
	for _, a := range at(t, container, "args").([]any) {
		name, _, _ := strings.Cut(strings.TrimPrefix(a.(string), "--"), "=")
		if flags.Lookup(name) == nil {
			t.Errorf("the daemon has no flag --%s", name)
		}
	}
	ports := map[any]any{}
	for _, p := range at(t, container, "ports").([]any) {
		ports[at(t, p, "name")] = at(t, p, "containerPort")
	}
	for _, p := range at(t, kinds["Service"], "spec", "ports").([]any) {
		if ports[at(t, p, "targetPort")] != at(t, p, "port") {
			t.Errorf("port %v of the service is not one of the container: %v", p, ports)
		}
	}
	if at(t, kinds["Service"], "spec", "clusterIP") != "None" {
		t.Error("the service has a virtual address")
	}
	for _, probe := range []string{"readinessProbe", "livenessProbe"} {
		if at(t, container, probe, "httpGet", "port") != "health" {
			t.Errorf("%s asks another port", probe)
		}
	}
	if fmt.Sprint(at(t, container, "securityContext", "capabilities", "drop")) != "[ALL]" {
		t.Error("the container keeps capabilities")
	}
	if !strings.Contains(read(t, "docs/kubernetes.md"), "packaging/kubernetes/rocev2d.yaml") {
		t.Error("docs/kubernetes.md does not name the manifests")
	}
}

func TestActionsExample(t *testing.T) {
	t.Parallel()
	text := read(t, "examples/ci/github-actions.yml")
	list := documents(t, text)
	if len(list) != 1 {
		t.Fatalf("%d documents", len(list))
	}
	var runs bytes.Buffer
	for _, s := range at(t, list[0], "jobs", "test", "steps").([]any) {
		if r, ok := at(t, s, "run").(string); ok {
			runs.WriteString(r + "\n")
		}
	}
	checkFlags(t, "the example", runs.String())
	if !strings.Contains(runs.String(), "rocev2 region read 127.0.0.1/scratch") {
		t.Error("the example does not use the device")
	}
}

// The image of programs has what its files name.
func TestProgramsImage(t *testing.T) {
	t.Parallel()
	text := read(t, "packaging/programs/Containerfile")
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))[1]
	for _, want := range []string{
		"golang:" + version + "-bookworm ", "FROM docker.io/library/debian:bookworm-slim", "go run ./programs/mkpreload",
		"echo /usr/local/lib/" + programs.LibraryName + " > /etc/ld.so.preload", "ENV ROCEV2_PROGRAMS=/run/rocev2",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the Containerfile lacks %q", want)
		}
	}
	list := documents(t, read(t, "packaging/programs/compose.yaml"))
	subnet := netip.MustParsePrefix(at(t, list[0], "networks", "rdma", "ipam", "config", 0, "subnet").(string))
	seen := map[any]bool{}
	for _, name := range []any{"server", "client"} {
		service := at(t, list[0], "services", name)
		addr := at(t, service, "networks", "rdma", "ipv4_address")
		if !subnet.Contains(netip.MustParseAddr(addr.(string))) || seen[addr] {
			t.Errorf("%v: the address %v is not one of its own in %v", name, addr, subnet)
		}
		seen[addr] = true
		if got := fmt.Sprint(at(t, service, "entrypoint")); got != fmt.Sprintf("[rocev2 run --device %v --]", addr) {
			t.Errorf("%v: the device is not the container's address %v: %s", name, addr, got)
		}
	}
	file := at(t, list[0], "services", "server", "build", "dockerfile").(string)
	if _, err := os.Stat(filepath.Join("..", "..", file)); err != nil {
		t.Error(err)
	}
}

// programsDir is where the library looks for a daemon.
const programsDir = "/run/rocev2"

// In the pods of programs the daemon has its directory where the library looks
// for it, and there are no privileges.
func TestKubernetesPrograms(t *testing.T) {
	t.Parallel()
	flags := (&program{}).command().Flags()
	pods, text := 0, read(t, "packaging/kubernetes/programs.yaml")
	for _, name := range []string{"shareProcessNamespace", "hostPID", "hostNetwork", "SYS_PTRACE"} {
		if strings.Contains(text, name) {
			t.Errorf("the manifests have %s, which is not needed", name)
		}
	}
	for _, d := range documents(t, text) {
		if d["kind"] == "Service" {
			if at(t, d, "spec", "clusterIP") != "None" {
				t.Error("the service has a virtual address")
			}
			continue
		}
		if d["kind"] == "NetworkPolicy" {
			continue
		}
		pods++
		spec := at(t, d, "spec", "template", "spec")
		daemon, user := at(t, spec, "initContainers", 0), at(t, spec, "containers", 0)
		if at(t, daemon, "restartPolicy") != "Always" {
			t.Errorf("%v: the daemon is no sidecar", d["kind"])
		}
		for _, a := range at(t, daemon, "args").([]any) {
			name, value, _ := strings.Cut(strings.TrimPrefix(a.(string), "--"), "=")
			if flags.Lookup(name) == nil {
				t.Errorf("%v: the daemon has no flag --%s", d["kind"], name)
			}
			if name == "programs" && value != programsDir {
				t.Errorf("%v: programs look for the daemon in %s", d["kind"], programsDir)
			}
		}
		for _, c := range []any{daemon, user} {
			if at(t, c, "volumeMounts", 0, "mountPath") != programsDir || fmt.Sprint(at(t, c, "securityContext", "capabilities", "drop")) != "[ALL]" {
				t.Errorf("%v: the container %v has another directory, or capabilities", d["kind"], at(t, c, "name"))
			}
		}
	}
	if pods != 2 {
		t.Errorf("%d pods", pods)
	}
	if !strings.Contains(read(t, "docs/programs.md"), "packaging/kubernetes/programs.yaml") {
		t.Error("docs/programs.md does not name the manifests")
	}
}

func TestProgramsActionsExample(t *testing.T) {
	t.Parallel()
	list := documents(t, read(t, "examples/ci/programs.yml"))
	if len(list) != 1 {
		t.Fatalf("%d documents", len(list))
	}
	var runs strings.Builder
	for _, s := range at(t, list[0], "jobs", "test", "steps").([]any) {
		if r, ok := at(t, s, "run").(string); ok {
			runs.WriteString(r + "\n")
		}
	}
	for _, want := range []string{"rocev2 run --device 127.0.0.1 -- ibv_devinfo", "-- mpirun -np 4"} {
		if !strings.Contains(runs.String(), want) {
			t.Errorf("the example does not have %q", want)
		}
	}
}

// ignored returns what .dockerignore leaves out, as docker understands it: a
// pattern is for the whole path below the root, ** stands for any directories,
// and what is below a directory that is left out is left out, too.
func ignored(t *testing.T) func(path string) bool {
	t.Helper()
	var all []*regexp.Regexp
	for line := range strings.Lines(read(t, ".dockerignore")) {
		line = strings.Trim(strings.TrimSpace(line), "/")
		if line == "" || line[0] == '#' {
			continue
		}
		if strings.ContainsAny(line, "!?[") {
			t.Fatalf(".dockerignore: this test does not know patterns such as %q", line)
		}
		text := strings.NewReplacer(`\*\*/`, `(.*/)?`, `\*`, `[^/]*`).Replace(regexp.QuoteMeta(line))
		all = append(all, regexp.MustCompile("^"+text+"(/|$)"))
	}
	return func(path string) bool {
		return slices.ContainsFunc(all, func(r *regexp.Regexp) bool { return r.MatchString(path) })
	}
}

// The images are built without what changes often and is not needed, and with
// all that is.
func TestDockerignore(t *testing.T) {
	t.Parallel()
	out := ignored(t)
	for _, path := range []string{".git/config", "bin/rocev2", "docs/page-dark.png", "cmd/rocev2d/main_test.go", "fabric/lab/testdata/loss.txt", "programs/preload/librocev2-preload-amd64.so", "cpu.prof", "README.md"} {
		if !out(path) {
			t.Errorf("%s is sent to the builder", path)
		}
	}
	const list = `{{if .Module}}{{if .Module.Main}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{range .EmbedFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`
	cmd := exec.Command("go", "list", "-deps", "-f", list, "./cmd/rocev2", "./cmd/rocev2d", "./programs/mkpreload")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "GOOS=linux")
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs(cmd.Dir)
	if err != nil {
		t.Fatal(err)
	}
	needed := []string{"go.mod", "go.sum"}
	for file := range strings.Lines(string(text)) {
		rel, err := filepath.Rel(root, strings.TrimSpace(file))
		if err != nil {
			t.Fatal(err)
		}
		needed = append(needed, filepath.ToSlash(rel))
	}
	if len(needed) < 200 {
		t.Fatalf("%d files", len(needed))
	}
	for _, path := range needed {
		if out(path) && !strings.HasSuffix(path, ".so") { // the image makes its own
			t.Errorf("%s is needed, and left out", path)
		}
	}
}
