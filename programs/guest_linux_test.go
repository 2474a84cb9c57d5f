package programs

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/uverbs/abi"
	"github.com/gosoftroce/rocev2/uverbs/quota"
)

// guestOf is the environment variable that has this program be another process
// that uses the devices of a host: it does what lines on its standard input
// say, and answers each with an error number.
const guestOf = "ROCEV2_TEST_GUEST"

// talk asks a host by a connection.
func talk(conn *net.UnixConn, op uint32, arg uint64, payload []byte) (ret int32, resp []byte) {
	if _, err := conn.Write(question(op, arg, string(payload))); err != nil {
		return -int32(unix.EPIPE), nil
	}
	in, oob := make([]byte, 1<<16), make([]byte, 256)
	n, oobn, _, _, err := conn.ReadMsgUnix(in, oob)
	for _, f := range takeFiles(oob[:oobn]) {
		f.Close()
	}
	if err != nil || n < replySize {
		return -int32(unix.EPIPE), nil
	}
	return int32(binary.NativeEndian.Uint32(in)), in[replySize:n]
}

// command returns one of either device file; words is what it is in units of.
func command(c uint32, in, out int, body ...any) []byte {
	b := make([]byte, 8)
	for _, v := range body {
		b, _ = binary.Append(b, binary.LittleEndian, v)
	}
	if in == 0 { // of the connection manager
		in = len(b) - 8
	} else {
		in = len(b) / 4
		out /= 4
	}
	binary.LittleEndian.PutUint32(b, c)
	binary.LittleEndian.PutUint16(b[4:], uint16(in))
	binary.LittleEndian.PutUint16(b[6:], uint16(out))
	return b
}

func beGuest(path string) int {
	open := func(name string) *net.UnixConn {
		conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		if ret, _ := talk(conn, opHello, Version, []byte(name+"\x00")); ret != 0 {
			fmt.Println(name, unix.Errno(-ret))
			os.Exit(1)
		}
		return conn
	}
	dev, cm := open("uverbs0"), open("rdma_cm")
	talk(dev, opCommand, 0, command(uint32(abi.GetContext), 1, 8, abi.GetContextReq{}))
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		f := strings.Fields(in.Text())
		var ret int32
		switch f[0] {
		case "domain":
			ret, _ = talk(dev, opCommand, 0, command(uint32(abi.AllocPD), 1, 4, abi.AllocPDReq{}))
		case "id", "bind":
			var id []byte
			ret, id = talk(cm, opCommand, 0, command(0, 0, 4, uint64(1), uint64(0x1000), uint16(0x0106), [6]byte{}))
			if f[0] == "bind" && ret > 0 {
				port, _ := strconv.Atoi(f[1])
				ret, _ = talk(cm, opCommand, 0, command(2, 0, 0, uint64(0), uint16(unix.AF_INET), uint16(port>>8|port&255<<8), [24]byte{}, id[:4]))
			}
		}
		fmt.Println(-min(ret, 0))
	}
	return 0
}

// guest is another process that uses a host.
type guest struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

// invite starts a process, of another user where that can be.
func invite(t *testing.T, h *Host) *guest {
	t.Helper()
	g := &guest{t: t, cmd: exec.Command("/proc/self/exe")}
	g.cmd.Env = append(os.Environ(), guestOf+"="+filepath.Join(h.config.Dir, "socket"))
	if os.Geteuid() == 0 {
		g.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	in, err := g.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	g.in, g.out = in, bufio.NewReader(out)
	if err := g.cmd.Start(); err != nil {
		t.Skipf("user 65534 cannot run this test program (put TMPDIR where all users may read): %v", err)
	}
	t.Cleanup(func() {
		in.Close()
		g.cmd.Wait()
	})
	if line, _ := g.out.ReadString('\n'); line != "ready\n" {
		t.Skipf("the memory of another process may not be read here (sysctl kernel.yama.ptrace_scope=0, or run it as root): %s", line)
	}
	return g
}

// say has the process do something, and returns the error number.
func (g *guest) say(what string) unix.Errno {
	g.t.Helper()
	fmt.Fprintln(g.in, what)
	line, err := g.out.ReadString('\n')
	n, e := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || e != nil {
		g.t.Fatalf("%s: %q, %v", what, line, err)
	}
	return unix.Errno(n)
}

// openHost serves a device to processes of any user.
func openHost(t *testing.T, c Config) *Host {
	t.Helper()
	c.Dir = shortDir(t)
	if err := os.Chmod(c.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return realHost(t, c)
}

// A second process of a user does not get what the first one has, before that
// has ended, or is killed.
func TestProcessesOfAUser(t *testing.T) {
	t.Parallel()
	h := openHost(t, Config{User: quota.Limits{quota.PDs: 3, quota.IDs: 2}})
	for range 2 {
		a := invite(t, h)
		for what, n := range map[string]int{"domain": 3, "id": 2} {
			for range n {
				if errno := a.say(what); errno != 0 {
					t.Errorf("%s: %v", what, errno)
				}
			}
		}
		b := invite(t, h)
		for _, what := range []string{"domain", "id"} {
			if errno := b.say(what); errno != unix.ENOMEM {
				t.Errorf("%s of a second process: %v", what, errno)
			}
		}
		if err := a.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for _, what := range []string{"domain", "id"} {
			for errno := unix.ENOMEM; errno == unix.ENOMEM; { // until the daemon has seen it
				errno = b.say(what)
			}
		}
		b.cmd.Process.Kill()
		eventually(t, func() bool { return h.connected() == 0 })
	}
}

// Ports below 1024 are not for other users than that of the daemon.
func TestLowPortsOfUsers(t *testing.T) {
	t.Parallel()
	g := invite(t, openHost(t, Config{}))
	want := unix.EACCES
	if os.Geteuid() != 0 {
		want = 0
	}
	for port, want := range map[int]unix.Errno{0: 0, 80: want, 1023: want, 1024: 0} {
		if errno := g.say(fmt.Sprint("bind ", port)); errno != want {
			t.Errorf("port %d: %v, want %v", port, errno, want)
		}
	}
}
