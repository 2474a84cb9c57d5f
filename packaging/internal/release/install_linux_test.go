package release

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// suite is the distribution in which the package is installed, with what its
// tests need.
const (
	suite    = "bookworm"
	packages = "systemd,systemd-sysv,dbus,ibverbs-utils,perftest,fio,netpipe-openmpi,openmpi-bin"
)

// needed skips the test where the machine lacks something.
func needed(t *testing.T, programs ...string) {
	t.Helper()
	if os.Getenv("ROCEV2_E2E") == "" {
		t.Skip("set ROCEV2_E2E=1 (make test-release): it installs a Debian, and builds a release")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can change the root directory and mount")
	}
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed (on Debian: apt-get install git gcc debootstrap systemd-container)", name)
		}
	}
}

// debian is held while a Debian is fetched: tests that run at the same time
// need one and the same.
var debian sync.Mutex

// fetched returns the folder of the Debian in the user's cache.
func fetched(t *testing.T) string {
	t.Helper()
	debian.Lock()
	defer debian.Unlock()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(cache, "rocev2-packaging", fmt.Sprintf("%s-%x", suite, sha256.Sum256([]byte(packages)))[:24])
	if _, err := os.Stat(base); err == nil {
		return base
	}
	fresh := base + ".new"
	os.RemoveAll(fresh)
	if err := os.MkdirAll(filepath.Dir(base), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "debootstrap", "--variant=minbase", "--include="+packages, suite, fresh).CombinedOutput()
	if err != nil {
		t.Skipf("debootstrap gets no Debian: %v\n%s", err, tail(out))
	}
	if err := os.Rename(fresh, base); err != nil {
		t.Fatal(err)
	}
	return base
}

// bare returns a bare Debian of the test's own: a layer above one that is
// fetched once and then kept in the user's cache.
func bare(t *testing.T) string {
	t.Helper()
	needed(t, "debootstrap", "mount")
	base := fetched(t)
	dir, err := os.MkdirTemp("", "rocev2-root-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range []string{"upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root := filepath.Join(dir, "root")
	option := "lowerdir=" + base + ",upperdir=" + dir + "/upper,workdir=" + dir + "/work"
	if out, err := exec.Command("mount", "-t", "overlay", "-o", option, "overlay", root).CombinedOutput(); err != nil {
		t.Skipf("this machine mounts no overlay: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", root).CombinedOutput(); err != nil {
			t.Errorf("umount: %v\n%s", err, out)
		}
	})
	return root
}

func tail(b []byte) []byte { return b[max(0, len(b)-2000):] }

// within runs a script in a root directory, with /proc.
func within(t *testing.T, root, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--fork", "--mount-proc="+root+"/proc", "chroot", root, "/bin/sh", "-exc", script)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// built builds a release for this processor, the same for all tests: that which
// ROCEV2_RELEASE names, or else one of the working tree.
func built(t *testing.T) (folder string) {
	t.Helper()
	if dir := os.Getenv("ROCEV2_RELEASE"); dir != "" {
		return dir
	}
	needed(t, "git", "cc")
	dir := t.TempDir()
	c := Config{Repository: repository(t), Out: dir, Platforms: Usual, Changes: true, Log: t.Output()}
	names, err := Build(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the release: %s", strings.Join(names, ", "))
	c.Platforms = []Platform{here} // make release compares all
	if err := Check(t.Context(), c); err != nil {
		t.Errorf("a second build has other bytes:\n%v", err)
	}
	return dir
}

// deb puts the package of a release into a root.
func deb(t *testing.T, release, root string) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(release, "*_"+runtime.GOARCH+".deb"))
	if err != nil || len(list) != 1 {
		t.Fatalf("packages of %s: %v, %v", release, list, err)
	}
	text, err := os.ReadFile(list[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "new.deb"), text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// What a release has works: archives, packages, pages and completions; and a
// bare Debian installs its package, upgrades it, and removes it, as a new user
// would. Then systemd runs it.
func TestRelease(t *testing.T) {
	needed(t)
	release := built(t)
	for name, test := range map[string]func(*testing.T, string){
		"checksums": hasChecksums, "archives": hasArchives, "libraries": hasLibraries, "arm64": runsArm64, "materials": hasMaterials,
		"pages": hasPages, "completions": hasCompletions, "deb": readsDEB, "rpm": readsRPM, "debian": installs, "systemd": boots,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, release)
		})
	}
}

func hasChecksums(t *testing.T, release string) {
	out := outputOf(t, release, "sha256sum", "-c", "--strict", sumsFile)
	list, err := os.ReadDir(release)
	if err != nil || strings.Count(out, ": OK\n") != len(list)-1 {
		t.Errorf("%d files, %v; checksums are there for\n%s", len(list), err, out)
	}
}

// leftover finds what a purged package has left. The files of the test do not
// count.
const leftover = `find / -xdev -name '*rocev2*' -not -path '/proc/*' -not -path '/sys/*'`

func installs(t *testing.T, release string) {
	root := bare(t)
	deb(t, release, root)
	// An older version of it. To compress it would take most of the time.
	within(t, root, `cd /; dpkg-deb -R new.deb old; sed -i 's/^Version:.*/Version: 0.0.0~0/' old/DEBIAN/control; dpkg-deb -Znone -b old old.deb; rm -r old`)
	within(t, root, `apt-get install -y /old.deb
		dpkg -s rocev2 | grep '^Version: 0.0.0~0$'
		id rocev2; getent group rocev2
		echo '# mine' >> /etc/rocev2d.toml`)
	out := within(t, root, `apt-get install -y /new.deb
		tail -1 /etc/rocev2d.toml | grep '^# mine$'
		! dpkg --verify rocev2 | grep -v /etc/rocev2d.toml | grep -v /usr/share
		rocev2 --version; rocev2d --version
		rocev2d --check --config /etc/rocev2d.toml
		test -L /etc/systemd/system/multi-user.target.wants/rocev2d.service
		test -s /usr/share/bash-completion/completions/rocev2
		test -s /usr/share/zsh/vendor-completions/_rocev2d
		test -s /usr/share/fish/vendor_completions.d/rocev2.fish
		rocev2 __complete perf write_b
		systemd-analyze verify --man=no /usr/lib/systemd/system/rocev2d.service
		rocev2 doctor || true`)
	for _, want := range []string{"commit ", "date 20", "ICRC by ", "no mistakes", "write_bw"} {
		if !strings.Contains(out, want) {
			t.Errorf("the installed programs do not say %q:\n%s", want, out)
		}
	}
	out = within(t, root, `apt-get remove -y rocev2
		test ! -e /usr/bin/rocev2d; test -e /etc/rocev2d.toml
		apt-get purge -y rocev2
		`+leftover)
	if found := regexp.MustCompile(`(?m)^/.*rocev2.*$`).FindAllString(out, -1); len(slices.DeleteFunc(found, func(s string) bool { return strings.HasSuffix(s, ".list") })) > 0 {
		t.Errorf("a purge leaves %q\n%s", found, out)
	}
}

// script is what a machine with the package does after it has booted. Its
// output is compared.
const script = `#!/bin/sh
# What goes wrong is in the output, for which the test looks.
as() { user=$1; shift; cd /home/"$user"; runuser -u "$user" -- env HOME=/home/"$user" "$@"; }
bw() {
	as alice rocev2 run -- ib_write_bw -n 100 > /bw-server.txt 2>&1 & server=$!
	while kill -0 $server; do
		if as alice rocev2 run -- ib_write_bw -n 100 127.0.0.1 > /bw.txt 2>&1; then wait $server && echo "$1 bw: ran"; return; fi
		grep -q "Couldn't connect" /bw.txt || break
		sleep 0.2
	done
	cat /bw.txt /bw-server.txt; echo "$1 bw: failed"; kill $server
}
# fio and MPI as docs/programs.md has them.
storage() {
	as alice rocev2 run -- fio /fio/server.fio > /fio-server.txt 2>&1 & server=$!
	for i in $(seq 100); do
		if as alice rocev2 run --stats -- fio /fio/client.fio > /fio.txt 2>&1; then wait $server; echo "fio: $?"; break; fi
		sleep 0.2
	done
	grep -e 'by UDP' -e ' WRITE: ' /fio.txt || cat /fio.txt /fio-server.txt
}
mpi() {
	as alice rocev2 run --stats -- mpirun --oversubscribe -n 2 --mca pml ucx -x UCX_TLS=rc_v,self NPopenmpi -i -n 20 -u 65536 > /mpi.txt 2>&1
	echo "mpi: $?"
	grep -e 'made .* queue pair' -e 'Integrity check passed' /mpi.txt || cat /mpi.txt
}
# The program of docs/guide.md in a module of the user's own. Both sides share
# the port of the daemon.
own() {
	as alice /own listen 127.0.0.1:7471 & server=$!
	as alice timeout 60 /own dial 127.0.0.1 127.0.0.1:7471; echo "own: $?"
	kill $server 2> /dev/null
}
echo "state: $(systemctl is-active rocev2d)"
echo "directory: $(stat -c '%a %U %G' /run/rocev2)"
pid=$(systemctl show -p MainPID --value rocev2d)
echo "user: $(stat -c %U /proc/$pid)"
grep CapEff /proc/$pid/status
as alice rocev2 run -- ibv_devices && echo "alice: ran"
bw first
storage
mpi
own
as bob rocev2 run -- ibv_devices; echo "bob: $?"
systemctl reload rocev2d; echo "reload: $?"
systemctl restart rocev2d; echo "restart: $?"
bw second
systemd-analyze verify --man=no rocev2d.service; echo "verify: $?"
systemd-analyze security --no-pager rocev2d.service | tail -1
systemctl status --no-pager rocev2d
systemctl stop rocev2d
test -e /run/rocev2 || echo "directory: gone"
echo "end of the test"
`

const scriptUnit = `[Unit]
After=rocev2d.service dbus.service
[Service]
Type=oneshot
ExecStart=/bin/sh /test.sh
StandardOutput=append:/result.txt
StandardError=append:/result.txt
ExecStopPost=/bin/systemctl --no-block poweroff
[Install]
WantedBy=multi-user.target
`

// ownProgram builds the program of docs/guide.md in a module of its own.
func ownProgram(t *testing.T, to string) {
	dir, source := t.TempDir(), filepath.Join(repository(t), "examples/first/main.go")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	script := `go mod init example.com/own; go mod edit -replace github.com/gosoftroce/rocev2="$0"; go mod tidy; CGO_ENABLED=0 go build -o "$1" .`
	outputOf(t, dir, "sh", "-ec", script, repository(t), to)
}

// documented returns the text of the example that follows a line of a document.
func documented(t *testing.T, name, line string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository(t), name))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), line+"\n")
	if !ok {
		t.Fatalf("%s has no line %q", name, line)
	}
	_, rest, _ = strings.Cut(rest, "```")
	_, rest, _ = strings.Cut(rest, "\n")
	example, _, _ := strings.Cut(rest, "```")
	return example
}

func boots(t *testing.T, release string) {
	needed(t, "systemd-nspawn", "script")
	jobs := documented(t, "docs/programs.md", "### fio")
	server, client, ok := strings.Cut(jobs, "\n\n")
	if !ok {
		t.Fatalf("the jobs of fio are %q", jobs)
	}
	root := bare(t)
	deb(t, release, root)
	ownProgram(t, filepath.Join(root, "own"))
	for name, text := range map[string]string{"test.sh": script, "etc/systemd/system/test.service": scriptUnit, "usr/sbin/policy-rc.d": "#!/bin/sh\nexit 101\n",
		"fio/server.fio": server, "fio/client.fio": client} {
		mode := os.FileMode(0o755)
		if strings.HasSuffix(name, ".service") {
			mode = 0o644
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	within(t, root, `apt-get install -y /new.deb
		useradd -m alice; usermod -aG rocev2 alice; useradd -m bob
		systemctl enable test.service`)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	// It needs a terminal, and a machine that registers no containers.
	cmd := exec.CommandContext(ctx, "script", "-qefc", "systemd-nspawn --register=no --keep-unit --private-network -D '"+root+
		"' /lib/systemd/systemd --log-target=console --show-status=1", "/dev/null")
	var console bytes.Buffer
	cmd.Stdout, cmd.Stderr = &console, &console
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	result, _ := os.ReadFile(filepath.Join(root, "result.txt"))
	if !bytes.Contains(console.Bytes(), []byte("Welcome to")) {
		t.Skipf("this machine boots no systemd in systemd-nspawn: %v\n%s", err, tail(console.Bytes()))
	}
	t.Logf("report: %s", regexp.MustCompile(`(?m)^.*Overall exposure.*$`).Find(result))
	for _, want := range []string{
		"state: active", "directory: 750 rocev2 rocev2", "user: rocev2", "CapEff:\t0000000000000000",
		"alice: ran", "fio: 0", "WRITE: bw=", "mpi: 0", "Integrity check passed", "queue pair", "own: 0", "the peer wrote \"hello\" and counted to 1", "usermod -aG rocev2 bob", "first bw: ran", "reload: 0", "restart: 0", "second bw: ran", "verify: 0", "directory: gone", "end of the test",
	} {
		if !bytes.Contains(result, []byte(want)) {
			t.Errorf("there is no %q", want)
		}
	}
	if bytes.Contains(result, []byte("bob: 0")) {
		t.Error("a user outside the group runs a program on the device")
	}
	if t.Failed() {
		t.Logf("%v\n%s\nconsole:\n%s", err, result, tail(console.Bytes()))
	}
}
