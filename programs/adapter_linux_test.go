package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var buildAdapterOnce = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "rocev2-test-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, AdapterName)
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-tags=netgo,osusergo", "-ldflags="+adapterFlags, "-o", file, adapterPackage)
	if out, err := cmd.CombinedOutput(); err != nil {
		return out, err
	}
	return os.ReadFile(file)
})

// beside returns the library in a folder of its own, with the adapter.
func beside(t *testing.T) (lib string) {
	t.Helper()
	dir := t.TempDir()
	lib = copyFile(t, library(t), dir)
	adapter, err := buildAdapterOnce()
	if err != nil {
		t.Fatalf("%v\n%s", err, adapter)
	}
	if err := os.WriteFile(filepath.Join(dir, AdapterName), adapter, 0o755); err != nil {
		t.Fatal(err)
	}
	return lib
}

// address has the device of a tree be on another address of loopback, which no
// other test has.
func address(t *testing.T, tree, addr string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(tree, "dev/infiniband/uverbs0"), []byte("address="+addr+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestStrangers runs interpreters that open a device, and go on with what they
// do: children, signals, threads, faults.
func TestStrangers(t *testing.T) {
	t.Parallel()
	lib := beside(t)
	for i, c := range []struct{ name, want, program, script string }{
		{"perl", "300 children", "perl", `use Fcntl; my $n = 0; $SIG{CHLD} = sub { while (waitpid(-1, 1) > 0) { $n++ } };
			sysopen(F, "/dev/infiniband/uverbs0", O_RDWR) or die "open: $!";
			for (1 .. 300) { my $p = fork(); exit 0 if !$p; }
			while ($n < 300) { select(undef, undef, undef, 0.01) } print "$n children\n"`},
		{"bash", "3 100", "bash", `trap 'x=3' CHLD; exec 9<>/dev/infiniband/uverbs0; n=0
			for i in $(seq 100); do n=$((n + $(echo $i | cat | grep -c .))); done; echo $x $n`},
		{"python", "5 ended", "python3", strings.Join([]string{
			"import os, signal, threading, faulthandler, subprocess",
			"faulthandler.enable()",
			"fd = os.open('/dev/infiniband/uverbs0', os.O_RDWR)",
			"faulthandler.disable(); faulthandler.enable()",
			"n = 0",
			"def h(s, f):",
			"    global n; n += 1",
			"for s, t in ((signal.SIGALRM, signal.ITIMER_REAL), (signal.SIGPROF, signal.ITIMER_PROF)):",
			"    signal.signal(s, h); signal.setitimer(t, 0.001, 0.001)",
			"def w():",
			"    for i in range(100): os.close(os.open('/dev/infiniband/uverbs0', os.O_RDWR))",
			"ts = [threading.Thread(target=w) for _ in range(4)]",
			"for t in ts: t.start()",
			"for i in range(20): subprocess.run(['true'], check=True)",
			"for t in ts: t.join()",
			"for t in (signal.ITIMER_REAL, signal.ITIMER_PROF): signal.setitimer(t, 0)",
			"assert n > 10",
			"r, e = os.pipe()",
			"if os.fork() == 0:",
			"    os.dup2(os.open('/dev/null', os.O_RDWR), 2)",
			"    try: os.write(fd, b'x' * 24)",
			"    except OSError as x: os.write(e, str(x.errno).encode())",
			"    os._exit(0)",
			"print(os.read(r, 9).decode(), 'ended')"}, "\n")},
		{"waits for children", "20 waited", "python3", strings.Join([]string{
			"import os, signal",
			"signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())",
			"os.close(os.open('/dev/infiniband/uverbs0', os.O_RDWR))",
			"for i in range(20):",
			"    p = os.fork()",
			"    if p == 0: os._exit(0)",
			"    assert signal.sigwaitinfo({signal.SIGCHLD}).si_pid == p",
			"    os.waitpid(p, 0)",
			"print('20 waited')"}, "\n")},
		{"faults", "-11", "python3", strings.Join([]string{
			"import os, subprocess, sys",
			"p = 'import os, ctypes; os.open(\"/dev/infiniband/uverbs0\", os.O_RDWR); ctypes.string_at(0)'",
			"print(subprocess.run([sys.executable, '-c', p]).returncode)"}, "\n")},
		{"closes all", "closed", "python3", strings.Join([]string{
			"import os",
			"a = os.open('/dev/infiniband/uverbs0', os.O_RDWR)",
			"os.closerange(3, 4096)",
			"for i in range(3, 1024):",
			"    try: os.close(i)",
			"    except OSError: pass",
			"os.close(os.open('/dev/infiniband/uverbs0', os.O_RDWR))",
			"print('closed')"}, "\n")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			program, err := exec.LookPath(c.program)
			if err != nil {
				t.Skipf("there is no %s: install it", c.program)
			}
			tree := fakeTree(t)
			address(t, tree, "127.28.3."+string(rune('1'+i)))
			option := map[string]string{"perl": "-e"}[c.program]
			if option == "" {
				option = "-c"
			}
			out, err := preloaded(t, lib, tree, program, option, c.script).CombinedOutput()
			if err != nil || strings.TrimSpace(string(out)) != c.want {
				t.Errorf("%v: want %q, got: %s", err, c.want, out)
			}
		})
	}
}

// TestOddThreads runs testdata/odd.c: small stacks, coroutines, signals.
func TestOddThreads(t *testing.T) {
	t.Parallel()
	bin := program(t, "odd")
	lib, tree := beside(t), fakeTree(t)
	address(t, tree, "127.28.3.9")
	silent(t, preloaded(t, lib, tree, bin))
}
