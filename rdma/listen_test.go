package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listener makes a listener on the second of two devices, and a dialer on the
// first.
func listener(t testing.TB, lc rdma.ListenConfig) (*rdma.Listener, *rdma.Dialer) {
	t.Helper()
	a, b := verbstest.Devices(t)
	lc.Device = b
	l, err := lc.Listen(t.Context(), b.Addr().String()+":0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l, &rdma.Dialer{Device: a, MessageSize: lc.MessageSize}
}

// connect makes a connection between the two.
func connect(t testing.TB, l *rdma.Listener, d *rdma.Dialer) (client, server *rdma.Conn) {
	t.Helper()
	ctx := testContext(t)
	type result struct {
		c   *rdma.Conn
		err error
	}
	accepted := make(chan result, 1)
	go func() {
		c, err := l.Accept(ctx)
		accepted <- result{c, err}
	}()
	client, err := d.Dial(ctx, l.Addr().String())
	must(t, err)
	r := <-accepted
	must(t, r.err)
	t.Cleanup(func() { client.Close(); r.c.Close() })
	return client, r.c
}

// A program listens, another one dials; both have said something in the private
// data; messages pass in both directions; each learns that the other one has
// closed.
func TestListenAndDial(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, d := listener(t, rdma.ListenConfig{PrivateData: []byte("welcome")})
		d.PrivateData = []byte("hello")
		client, server := connect(t, l, d)
		if string(client.PrivateData()) != "welcome" || string(server.PrivateData()) != "hello" {
			t.Errorf("private data %q and %q", client.PrivateData(), server.PrivateData())
		}
		if client.Foreign() || server.Foreign() {
			t.Error("two of a kind take each other for foreign")
		}
		if client.RemoteAddr().String() != l.Addr().String() {
			t.Errorf("remote address %v", client.RemoteAddr())
		}
		ctx := testContext(t)
		go func() {
			var p [100]byte
			for {
				n, err := server.Recv(ctx, p[:])
				if err != nil {
					break
				}
				server.Send(ctx, bytes.ToUpper(p[:n]))
			}
			server.Close()
		}()
		var p [100]byte
		for i := range 10 {
			must(t, client.Send(ctx, fmt.Append(nil, "message ", i)))
			n, err := client.Recv(ctx, p[:])
			if want := fmt.Sprint("MESSAGE ", i); err != nil || string(p[:n]) != want {
				t.Fatalf("%q (%v), want %q", p[:n], err, want)
			}
		}
		must(t, client.Close())
		<-server.Done()
		if err := server.Err(); !errors.Is(err, rdma.ErrPeerClosed) && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

// A request can be looked at and rejected, with a word for the peer.
func TestReject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, d := listener(t, rdma.ListenConfig{})
		d.PrivateData = []byte("let me in")
		ctx := testContext(t)
		go func() {
			r, err := l.Request(ctx)
			if err != nil || string(r.PrivateData()) != "let me in" || r.Foreign() {
				t.Errorf("request %+v (%v)", r, err)
				return
			}
			if err := r.Reject([]byte("not today")); err != nil {
				t.Error(err)
			}
		}()
		_, err := d.Dial(ctx, l.Addr().String())
		var rejected *rdma.RejectedError
		if !errors.As(err, &rejected) || !strings.HasPrefix(string(rejected.PrivateData), "not today") {
			t.Errorf("error %v", err)
		}
		must(t, l.Close())
		if _, err := l.Accept(ctx); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close: %v", err)
		}
	})
}

// The listener's regions: found by name and in the list by those who may, read,
// written, and updated. What is not possible is refused, and the connection
// goes on.
func TestRegions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		must(t, os.WriteFile(path, bytes.Repeat([]byte("0123456789abcdef"), 4096), 0o600))
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		must(t, err)
		defer f.Close()
		var lc rdma.ListenConfig
		mem := make([]byte, 5<<20+123)
		for i := range mem {
			mem[i] = byte(i * i >> 3)
		}
		lc.Export("file", rdma.Region{File: f, Writable: true})
		lc.Export("fresh", rdma.Region{Size: 1 << 20, Writable: true})
		lc.Export("memory", rdma.Region{Memory: mem})
		lc.Export("secret", rdma.Region{Size: 4096, Allow: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}})
		for i := range 200 { // more than one answer has room for
			lc.Export(fmt.Sprintf("n%03d", i), rdma.Region{Size: 4096})
		}
		l, d := listener(t, lc)
		c, _ := connect(t, l, d)
		ctx := testContext(t)

		all, err := c.Regions(ctx)
		must(t, err)
		var names []string
		for _, r := range all {
			names = append(names, r.Name())
		}
		if len(names) != 203 || names[0] != "file" || names[1] != "fresh" || names[2] != "memory" || names[202] != "n199" {
			t.Errorf("%d regions: %v", len(names), names)
		}
		if _, err := c.Region(ctx, "nobody"); !errors.Is(err, rdma.ErrUnknownRegion) {
			t.Errorf("an unknown region: %v", err)
		}
		if _, err := c.Region(ctx, "secret"); !errors.Is(err, rdma.ErrPermission) || !errors.Is(err, fs.ErrPermission) {
			t.Errorf("a region of others: %v", err)
		}
		memory, err := c.Region(ctx, "memory")
		must(t, err)
		if memory.Size() != int64(len(mem)) || memory.Writable() {
			t.Errorf("memory: %d bytes, writable %v", memory.Size(), memory.Writable())
		}
		got, err := io.ReadAll(io.NewSectionReader(memory, 0, memory.Size()))
		if err != nil || !bytes.Equal(got, mem) {
			t.Errorf("read %d bytes, or others (%v)", len(got), err)
		}
		var copied bytes.Buffer
		var told int64
		n, err := memory.CopyTo(ctx, &copied, 100, memory.Size()-100, func(n int64) { told = n })
		if err != nil || n != memory.Size()-100 || told != n || !bytes.Equal(copied.Bytes(), mem[100:]) {
			t.Errorf("copied %d bytes, told %d (%v)", n, told, err)
		}
		if err := memory.Write(ctx, []byte("x"), 0); !errors.Is(err, rdma.ErrPermission) {
			t.Errorf("writing a read-only region: %v", err)
		}
		if _, err := memory.FetchAdd(ctx, 0, 1); !errors.Is(err, rdma.ErrPermission) {
			t.Errorf("an atomic on a read-only region: %v", err)
		}
		for _, off := range []int64{-1, memory.Size(), memory.Size() - 4, 1 << 62} {
			if err := memory.Read(ctx, make([]byte, 5), off); !errors.Is(err, rdma.ErrRange) {
				t.Errorf("reading at %d: %v", off, err)
			}
		}

		fresh, err := c.Region(ctx, "fresh")
		must(t, err)
		if _, err := fresh.WriteAt([]byte("some words"), 4000); err != nil {
			t.Error(err)
		}
		var p [10]byte
		if _, err := fresh.ReadAt(p[:], 4000); err != nil || string(p[:]) != "some words" {
			t.Errorf("%q (%v)", p, err)
		}
		if old, err := fresh.FetchAdd(ctx, 16, 5); old != 0 || err != nil {
			t.Errorf("FetchAdd: %d (%v)", old, err)
		}
		if old, err := fresh.CompareSwap(ctx, 16, 5, 6); old != 5 || err != nil {
			t.Errorf("CompareSwap: %d (%v)", old, err)
		}
		if _, err := fresh.FetchAdd(ctx, 12, 5); !errors.Is(err, rdma.ErrMisaligned) {
			t.Errorf("a misaligned atomic: %v", err)
		}

		file, err := c.Region(ctx, "file")
		must(t, err)
		must(t, file.Write(ctx, []byte("WRITTEN"), 16))
		content, err := os.ReadFile(path)
		if err != nil || string(content[16:24]) != "WRITTEN7" {
			t.Errorf("the file has %q (%v)", content[16:24], err)
		}
		must(t, l.Unexport("fresh"))
		if _, err := c.Region(ctx, "fresh"); !errors.Is(err, rdma.ErrUnknownRegion) {
			t.Errorf("a region that is not exported any more: %v", err)
		}
		if err := fresh.Read(ctx, p[:], 0); !errors.Is(err, rdma.ErrRefused) {
			t.Errorf("reading it: %v", err)
		}
		<-c.Done()
	})
}

// A peer that puts nothing of this protocol in the private data gets and sends
// plain messages.
func TestForeignPeers(t *testing.T) {
	t.Parallel()
	t.Run("client", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			l, d := listener(t, rdma.ListenConfig{})
			d.Foreign = true
			d.PrivateData = bytes.Repeat([]byte("x"), 56)
			client, server := connect(t, l, d)
			if !client.Foreign() || !server.Foreign() || !bytes.Equal(server.PrivateData(), d.PrivateData) {
				t.Fatalf("foreign %v %v, private data %q", client.Foreign(), server.Foreign(), server.PrivateData())
			}
			exchange(t, client, server)
			if _, err := client.Region(testContext(t), "x"); !errors.Is(err, rdma.ErrForeign) {
				t.Errorf("a region of a foreign peer: %v", err)
			}
		})
	})
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			l, d := listener(t, rdma.ListenConfig{Foreign: true})
			client, server := connect(t, l, d)
			if !client.Foreign() || !server.Foreign() {
				t.Fatalf("foreign %v %v", client.Foreign(), server.Foreign())
			}
			exchange(t, client, server)
		})
	})
}

// exchange has messages pass in both directions at once.
func exchange(t *testing.T, a, b *rdma.Conn) {
	t.Helper()
	ctx := testContext(t)
	const n = 500
	var wg sync.WaitGroup
	for _, c := range [][2]*rdma.Conn{{a, b}, {b, a}} {
		wg.Go(func() {
			for i := range n {
				if err := c[0].Send(ctx, bytes.Repeat([]byte{byte(i)}, i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
		wg.Go(func() {
			for i := range n {
				m, err := c[1].RecvMsg(ctx)
				if err != nil || len(m.Bytes()) != i || i > 0 && m.Bytes()[i-1] != byte(i) {
					t.Errorf("message %d: %d bytes (%v)", i, len(m.Bytes()), err)
					return
				}
				m.Release()
			}
		})
	}
	wg.Wait()
}

// Private data that looks like the protocol and is not is rejected, with the
// reason in words.
func TestWrongPrivateData(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, d := listener(t, rdma.ListenConfig{})
		ctx := testContext(t)
		go l.Accept(ctx)
		d.Foreign = true
		for _, data := range []string{
			"RMSG\x02\x00\x00\x02\x00\x01\x00\x00\x00\x00\x00\x00", // version
			"RMSG\x01\x00\x00\x02\x00\x01\x00\x00\x29\x00\x00\x00", // length
			"RMSG\x01\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00", // credits
			"RMSG\x01\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00", // size
		} {
			d.PrivateData = []byte(data)
			_, err := d.Dial(ctx, l.Addr().String())
			var rejected *rdma.RejectedError
			if !errors.As(err, &rejected) || rejected.Reason != cm.ReasonConsumer || !strings.Contains(string(rejected.PrivateData), "protocol") {
				t.Errorf("%q: %v", data, err)
			}
		}
	})
}

// Settings that are not possible are refused with what is.
func TestMisuse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, _ := verbstest.Devices(t)
		addr := a.Addr().String()
		ctx := testContext(t)
		for want, lc := range map[string]rdma.ListenConfig{
			"MessageSize is 500; it must be between 512": {MessageSize: 500},
			"Depth":       {Depth: 1 << 20},
			"KeepAlive":   {KeepAlive: 1},
			"PrivateData": {PrivateData: make([]byte, 181)},
		} {
			lc.Device = a
			if _, err := lc.Listen(ctx, addr+":0"); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", want, err)
			}
		}
		for name, r := range map[string]rdma.Region{
			"":           {Size: 1},
			"a\x00b":     {Size: 1},
			"nothing":    {},
			"too large":  {Size: 10, Memory: make([]byte, 9)},
			"negative":   {Size: -1},
			"persistent": {Size: 10, Persistent: true},
		} {
			lc := rdma.ListenConfig{Device: a}
			lc.Export(name, r)
			if _, err := lc.Listen(ctx, addr+":0"); err == nil {
				t.Errorf("region %q is exported", name)
			}
		}
		for _, addr := range []string{addr, addr + ":x", "198.51.100.7:7471"} {
			if l, err := rdma.Listen(ctx, addr); err == nil {
				t.Errorf("listens on %q: %v", addr, l.Addr())
			}
		}
		d := rdma.Dialer{Device: a, PrivateData: make([]byte, 41)}
		if _, err := d.Dial(ctx, "192.0.2.7:7471"); err == nil || !strings.Contains(err.Error(), "PrivateData") {
			t.Error(err)
		}
		lc := rdma.ListenConfig{Device: a}
		l, err := lc.Listen(ctx, addr+":0")
		must(t, err)
		defer l.Close()
		_, err = l.Export("twice", rdma.Region{Size: 10})
		must(t, err)
		if _, err = l.Export("twice", rdma.Region{Size: 10}); !errors.Is(err, rdma.ErrExported) {
			t.Error(err)
		}
		if err := l.Unexport("never"); !errors.Is(err, rdma.ErrUnknownRegion) {
			t.Error(err)
		}
	})
}

var _ verbs.Access
