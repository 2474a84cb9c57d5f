package programs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/verbs"
)

// serveFor is the environment variable that has this program be a daemon of a
// directory, with a device on the address behind a blank.
const serveFor = "ROCEV2_TEST_SERVE"

func serve(what string) int {
	dir, addr, _ := strings.Cut(what, " ")
	h, err := Listen(Config{Dir: dir, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err == nil {
		defer h.Close()
		err = h.OpenDevice(netip.MustParseAddr(addr), verbs.Config{Loopback: true})
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// openTo returns a directory of a user that everybody may read, with copies of
// files.
func openTo(t *testing.T, uid int, files ...string) string {
	t.Helper()
	dir := shortDir(t)
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(name)), b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, uid, -1); err != nil {
		t.Fatal(err)
	}
	return dir
}

// as has a command run as a user, without privileges.
func as(cmd *exec.Cmd, uid uint32) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
}

// daemonOf starts a daemon of a user, and returns its directory.
func daemonOf(t *testing.T, uid uint32, namespaces ...uintptr) string {
	t.Helper()
	dir, _ := startDaemon(t, uid, namespaces...)
	return dir
}

// startDaemon starts a daemon of a user.
func startDaemon(t *testing.T, uid uint32, namespaces ...uintptr) (dir string, cmd *exec.Cmd) {
	t.Helper()
	dir = openTo(t, int(uid))
	cmd = exec.Command("/proc/self/exe")
	if as(cmd, uid); uid == uint32(os.Geteuid()) {
		cmd.SysProcAttr.Credential = nil
	}
	for _, n := range namespaces {
		cmd.SysProcAttr.Cloneflags |= n
	}
	cmd.Env = append(os.Environ(), serveFor+"="+dir+" "+loopback()().String())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the daemon says %q, %v", line, err)
	}
	return dir, cmd
}

// TestCopier runs programs whose memory the daemon may not copy: those of
// another user, and those of its own that are not dumpable.
func TestCopier(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("processes of several users: run it as root")
	}
	const daemon, other = 64001, 64002
	bin := openTo(t, 0, library(t), program(t, "verbs"))
	for _, c := range []struct {
		who  string
		uid  uint32
		name string
	}{{"another user", other, "copier"}, {"another user", other, "stopped"}, {"another user", other, "import"}, {"the same user", daemon, "copier"},
		{"another namespace", daemon, "copier"}, {"another namespace", other, "import"}} {
		t.Run(c.who+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(filepath.Join(bin, "verbs"), c.name)
			as(cmd, c.uid)
			var namespaces []uintptr
			if c.who == "another namespace" {
				namespaces = []uintptr{unix.CLONE_NEWPID}
			}
			cmd.Env = append(os.Environ(), "LD_PRELOAD="+filepath.Join(bin, LibraryName), "ROCEV2_PROGRAMS="+daemonOf(t, daemon, namespaces...))
			cmd.WaitDelay = 5 * time.Second // of a child that is left over
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestCopierOfTools runs programs of the distribution so.
func TestCopierOfTools(t *testing.T) {
	t.Parallel()
	if os.Getenv("ROCEV2_E2E") == "" {
		t.Skip("the programs of a distribution run with ROCEV2_E2E=1 (make test-programs)")
	}
	if os.Geteuid() != 0 {
		t.Skip("processes of several users: run it as root")
	}
	reachPrograms(t)
	const daemon, other = 64001, 64002
	bin := openTo(t, 0, library(t))
	for _, tool := range []string{"ibv_rc_pingpong -g 0 -c -s 100000 -n 50", "ib_write_bw -x 0 -n 100", "ib_read_lat -x 0 -n 100"} {
		name, flags, _ := strings.Cut(tool, " ")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, err := exec.LookPath(name)
			if err != nil {
				t.Skipf("there is no %s: install ibverbs-utils and perftest", name)
			}
			dir, port := daemonOf(t, daemon), tcpPort(t)
			start := func(args ...string) (*exec.Cmd, *strings.Builder) {
				cmd, out := exec.CommandContext(t.Context(), path, append(append(strings.Fields(flags), "-p", port), args...)...), &strings.Builder{}
				as(cmd, other)
				cmd.Env = append(os.Environ(), "LD_PRELOAD="+filepath.Join(bin, LibraryName), "ROCEV2_PROGRAMS="+dir)
				cmd.Stdout, cmd.Stderr = out, out
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				return cmd, out
			}
			server, said := start()
			awaitListener(t, port)
			client, answered := start("127.0.0.1")
			if err := errors.Join(client.Wait(), server.Wait()); err != nil {
				t.Errorf("%v\n%s\n%s", err, said, answered)
			}
		})
	}
}

// tcpPort returns a port that nobody else takes before the test ends: a socket
// is bound to it that does not listen. Servers with SO_REUSEADDR may listen
// there, as all of the tools do.
func tcpPort(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, &unix.SockaddrInet4{})); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(name.(*unix.SockaddrInet4).Port)
}

// awaitListener waits until somebody listens to a TCP port.
func awaitListener(t *testing.T, port string) {
	t.Helper()
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			text, err := os.ReadFile(name)
			if err == nil && regexp.MustCompile(fmt.Sprintf(`:%04X [0-9A-F:]* 0A `, n)).Match(text) {
				return
			}
		}
		<-tick.C
	}
	t.Fatal("the server does not listen")
}
