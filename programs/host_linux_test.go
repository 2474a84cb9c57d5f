package programs

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// client speaks the protocol by hand.
type client struct {
	t    *testing.T
	conn *net.UnixConn
}

func dial(t *testing.T, h *Host) *client {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: filepath.Join(h.config.Dir, "socket"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{t, conn}
}

func question(op uint32, arg uint64, payload string) []byte {
	b := binary.NativeEndian.AppendUint32(nil, op)
	b = binary.NativeEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.NativeEndian.AppendUint64(b, arg)
	return append(b, payload...)
}

// raw sends bytes and returns the result and the files, or an error where the
// host has hung up.
func (c *client) raw(b []byte, fds ...int) (int32, []*os.File, error) {
	c.t.Helper()
	if _, _, err := c.conn.WriteMsgUnix(b, unix.UnixRights(fds...), nil); err != nil {
		return 0, nil, err
	}
	in, oob := make([]byte, 1<<17), make([]byte, 256)
	n, oobn, _, _, err := c.conn.ReadMsgUnix(in, oob)
	if err != nil {
		return 0, nil, err
	}
	files := sentFiles(oob[:oobn])
	c.t.Cleanup(func() { closeAll(files) })
	if n < replySize {
		c.t.Fatalf("a reply of %d bytes", n)
	}
	return int32(binary.NativeEndian.Uint32(in)), files, nil
}

func (c *client) ask(op uint32, arg uint64, payload string, fds ...int) (int32, []*os.File) {
	c.t.Helper()
	ret, files, err := c.raw(question(op, arg, payload), fds...)
	if err != nil {
		c.t.Fatal(err)
	}
	return ret, files
}

func TestHelloIsRefused(t *testing.T) {
	t.Parallel()
	h := fakeHost(t, Config{}, nil)
	for _, c := range []struct {
		name string
		arg  uint64
		node string
		want unix.Errno
	}{
		{"a version that is not there", 99, "uverbs0\x00", unix.EPROTO},
		{"a device that is not there", Version, "uverbs1\x00", unix.ENODEV},
		{"a path", Version, "../socket\x00", unix.ENODEV},
		{"no end of the name", Version, "uverbs0", unix.ENODEV},
		{"nothing", Version, "", unix.ENODEV},
	} {
		if ret, _ := dial(t, h).ask(opHello, c.arg, c.node); ret != -int32(c.want) {
			t.Errorf("%s: %d, want %d", c.name, ret, -int32(c.want))
		}
	}
}

func TestUsersAreRefused(t *testing.T) {
	t.Parallel()
	h := fakeHost(t, Config{Allow: func(uint32) bool { return false }}, nil)
	if ret, _ := dial(t, h).ask(opHello, Version, "uverbs0\x00"); ret != -int32(unix.EACCES) {
		t.Errorf("got %d", ret)
	}
}

func TestMalformedMessagesEndTheSession(t *testing.T) {
	t.Parallel()
	h := fakeHost(t, Config{}, nil)
	long := question(opCommand, 0, string(make([]byte, 3*maxPayload)))
	lying := question(opHello, Version, "uverbs0\x00")
	lying[4] = 200
	for name, b := range map[string][]byte{
		"short": {1, 2, 3}, "lying": lying, "long": long,
		"command before hello": question(opCommand, 0, "12345678"),
		"no such question":     question(77, 0, ""),
	} {
		if _, _, err := dial(t, h).raw(b); err == nil {
			t.Errorf("%s: it is answered", name)
		}
	}
	if ret, _ := dial(t, h).ask(opHello, Version, "uverbs0\x00"); ret != 0 {
		t.Errorf("another program's hello: %d", ret)
	}
}

// TestFilesThatNobodyWantsAreClosed sends a pipe with everything.
func TestFilesThatNobodyWantsAreClosed(t *testing.T) {
	t.Parallel()
	h := fakeHost(t, Config{}, nil)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := dial(t, h)
	fd := int(w.Fd())
	c.ask(opHello, Version, "uverbs0\x00", fd, fd)
	c.ask(opCommand, 0, "0123456789abcdef", fd, fd, fd)
	c.ask(opMap, 0, "", fd)
	c.ask(opForget, 3, "", fd)
	c.ask(opBye, 0, "", fd) // its answer comes before the last files are closed
	c.conn.Close()
	w.Close()
	if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("read %d bytes", n) // until every copy of w is closed
	}
}

func TestAttachNeedsTheFile(t *testing.T) {
	t.Parallel()
	opens := make(chan *fakeFile, 2)
	h := fakeHost(t, Config{}, opens)
	first := dial(t, h)
	ret, files := first.ask(opHello, Version, "uverbs0\x00")
	if ret != 0 || len(files) != 2 {
		t.Fatalf("hello: %d, %d files", ret, len(files))
	}
	if ret, _ := dial(t, h).ask(opAttach, Version, "uverbs0\x00"); ret != -int32(unix.EINVAL) {
		t.Errorf("without a file: %d", ret)
	}
	if ret, _ := dial(t, h).ask(opAttach, Version, "uverbs0\x00", 0); ret != -int32(unix.ENODEV) {
		t.Errorf("with another file: %d", ret)
	}
	second := dial(t, h)
	if ret, files := second.ask(opAttach, Version, "uverbs0\x00", int(files[0].Fd())); ret != 0 || len(files) != 2 {
		t.Errorf("with the file: %d, %d files", ret, len(files))
	}
	first.ask(opBye, 0, "")
	f := <-opens
	select {
	case <-f.closed:
		t.Error("closed while another process has it")
	default:
	}
	second.conn.Close()
	<-f.closed
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	h := fakeHost(t, Config{MaxConnections: 2}, nil)
	for range 2 {
		if ret, _ := dial(t, h).ask(opHello, Version, "uverbs0\x00"); ret != 0 {
			t.Fatalf("hello: %d", ret)
		}
	}
	if _, _, err := dial(t, h).raw(question(opHello, Version, "uverbs0\x00")); err == nil {
		t.Error("a third one is answered")
	}
}

func TestADirectoryHasOneHost(t *testing.T) {
	t.Parallel()
	h := fakeHost(t, Config{}, nil)
	if _, err := Listen(h.config); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v", err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Listen(h.config)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if _, err := os.Stat(filepath.Join(h.config.Dir, "sys")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the tree is there: %v", err)
	}
}

func TestPathOfTheSocket(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"relative", "/tmp/" + string(make([]byte, 120))} {
		if _, err := Listen(Config{Dir: dir}); err == nil {
			t.Errorf("%q serves", dir)
		}
	}
}

func TestWaitEndsWhenAllHaveGone(t *testing.T) {
	t.Parallel()
	h := fakeHost(t, Config{}, nil)
	c := dial(t, h)
	if ret, _ := c.ask(opHold, 0, ""); ret != 0 {
		t.Fatalf("hold: %d", ret)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h.Wait(ctx, time.Millisecond, time.Millisecond)
	c.conn.Close()
	h.Wait(t.Context(), time.Hour, time.Millisecond)
}

// TestWaitForTheFirst: whoever has started a host may take longer to connect
// than a host outlives its last program.
func TestWaitForTheFirst(t *testing.T) {
	t.Parallel()
	h := fakeHost(t, Config{}, nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.Wait(t.Context(), time.Hour, 0)
	}()
	for range 1000 { // more often than a host needs that waits for nobody
		runtime.Gosched()
	}
	c := dial(t, h)
	if ret, _ := c.ask(opHold, 0, ""); ret != 0 {
		t.Fatalf("hold: %d", ret)
	}
	c.conn.Close()
	<-ended
}
