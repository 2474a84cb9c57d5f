package programs

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/ucma"
	"github.com/gosoftroce/rocev2/uverbs/quota"
)

// connectFor is the environment variable that has this program connect to a
// host, give the connection away, and end.
const connectFor = "ROCEV2_TEST_CONNECT"

// giveAway connects to a socket and sends the connection to descriptor 3.
func giveAway(path string) error {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return err
	}
	f, err := conn.File()
	if err != nil {
		return err
	}
	return unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(f.Fd())), nil, 0)
}

// The number of a process that has ended may be another one's. So nobody opens
// a device by a connection that such a process has left behind.
func TestConnectionOfTheDead(t *testing.T) {
	t.Parallel()
	if fd, err := unix.PidfdOpen(os.Getpid(), 0); err != nil {
		t.Skipf("pidfd_open: %v", err)
	} else {
		unix.Close(fd)
	}
	opens := make(chan *fakeFile, 1)
	h := fakeHost(t, Config{}, opens)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "pair")
	child := exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), connectFor+"="+filepath.Join(h.config.Dir, "socket"))
	child.ExtraFiles = []*os.File{theirs}
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	theirs.Close()
	defer unix.Close(pair[0])
	oob := make([]byte, 64)
	_, n, _, _, err := unix.Recvmsg(pair[0], make([]byte, 1), oob, 0)
	if err != nil {
		t.Fatal(err)
	}
	files := sentFiles(oob[:n])
	if len(files) != 1 {
		t.Fatalf("%d files", len(files))
	}
	defer closeAll(files)
	conn, err := net.FileConn(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := &client{t, conn.(*net.UnixConn)}
	if ret, _, err := c.raw(question(opHello, Version, "uverbs0\x00")); err == nil && ret != -int32(unix.ESRCH) {
		t.Errorf("hello: %d", ret)
	}
	select {
	case f := <-opens:
		<-f.closed
	default:
	}
}

// Who may not use the devices does not keep connections, or the daemon, either.
func TestStrangersDoNotHold(t *testing.T) {
	t.Parallel()
	h := fakeHost(t, Config{Allow: func(uint32) bool { return false }}, nil)
	if ret, _ := dial(t, h).ask(opHold, 0, ""); ret != -int32(unix.EACCES) {
		t.Errorf("got %d", ret)
	}
	if _, err := Hold(h.config.Dir); !errors.Is(err, ErrRefused) {
		t.Errorf("Hold: %v", err)
	}
}

// IDs are taken from files that the process itself has open.
func TestTokensAreNotGuessed(t *testing.T) {
	t.Parallel()
	mine := &ucma.Client{}
	h := &Host{sessions: map[*session]struct{}{
		{peer: Peer{PID: 10}, file: &openFile{File: &cmFile{client: mine}, token: 5}}: {},
		{peer: Peer{PID: 11}}: {},
		{peer: Peer{PID: 0}, file: &openFile{File: &cmFile{client: mine}, token: 6}}: {},
	}}
	for _, c := range []struct {
		pid, token int
		want       *ucma.Client
	}{{10, 5, mine}, {11, 5, nil}, {10, 6, nil}, {0, 6, nil}, {10, -1, nil}} {
		if got := h.cmClient(c.pid, c.token); got != c.want {
			t.Errorf("process %d, token %d: %v", c.pid, c.token, got != nil)
		}
	}
}

// A process that has a file open by two connections still has its memory known
// when one of them ends.
func TestTwoConnectionsOfAProcess(t *testing.T) {
	t.Parallel()
	f := &verbsFile{host: &Host{accounts: map[uint32]*quota.Account{}}, spaces: map[int]*attachment{}}
	p := Peer{PID: os.Getpid(), UID: uint32(os.Geteuid())}
	for range 2 {
		if err := f.Attach(p); err != nil {
			t.Skipf("this process may not open its own memory (mount /proc): %v", err)
		}
	}
	f.Detach(p)
	if _, err := f.space(p.PID); err != nil {
		t.Error(err)
	}
	f.Detach(p)
	f.Detach(p)
	if _, err := f.space(p.PID); err == nil {
		t.Error("its memory is kept")
	}
}

// Another user joins an open file by that itself, and not by one that looks
// like it.
func TestAttachOfAnotherUser(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll([]*os.File{r, w})
	if !sameFile(r, r) {
		t.Skip("no kcmp")
	}
	again, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", r.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	f := &openFile{File: &fakeFile{visible: r}, uid: 1}
	for _, c := range []struct {
		uid  uint32
		by   *os.File
		want bool
	}{{1, again, true}, {2, again, false}, {2, w, false}, {2, r, true}} {
		if got := f.proven(c.uid, c.by); got != c.want {
			t.Errorf("user %d, %v: %v", c.uid, c.by.Name(), got)
		}
	}
}
