package programs

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// FuzzSession has programs send messages with files of their choice, and hang
// up in the middle. The host goes on.
func FuzzSession(f *testing.F) {
	dir, err := os.MkdirTemp("", "roce")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { os.RemoveAll(dir) })
	h, err := Listen(Config{Dir: dir})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { h.Close() })
	dev, _ := verbstest.Devices(f, verbstest.Config{Network: fabric.Config{}})
	if err := h.AddDevice(dev); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{1, 1, 1, 0, 3, 5, 0, 0, 8, 0, 0})
	f.Add([]byte{2, 1, 1, 1, 0, 3, 9, 2, 4, 24, 3})
	f.Add([]byte{1, 1, 1, 7, 7, 16, 1, 11, 1, 0, 0, 10, 2, 3, 3})
	names := []string{"uverbs0\x00", "rdma_cm\x00", "", "\x00"}
	f.Fuzz(func(t *testing.T, in []byte) {
		memory, bell, err := fakeMemory()
		if err != nil {
			t.Fatal(err)
		}
		sent := []*os.File{memory, bell}
		defer func() { closeAll(sent) }()
		var conns [2]*net.UnixConn
		for i := range conns {
			if conns[i], err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: filepath.Join(dir, "socket"), Net: "unixpacket"}); err != nil {
				t.Fatal(err)
			}
			defer conns[i].Close()
			conns[i].SetDeadline(time.Now().Add(2 * time.Minute))
		}
		for len(in) >= 4 {
			op, arg, n, files := uint32(in[0]%16), uint64(in[1]&3)|uint64(in[1]>>2)<<30, int(in[2]), int(in[3])
			in = in[4:]
			payload := names[n%len(names)]
			if op != opHello && op != opAttach {
				n = min(n, len(in))
				payload, in = string(in[:n]), in[n:]
			}
			var fds []int
			for i := range files & 7 {
				fds = append(fds, int(sent[(files>>3+i)%len(sent)].Fd()))
			}
			c := conns[files>>7]
			if _, _, err := c.WriteMsgUnix(question(op, arg, payload), unix.UnixRights(fds...), nil); err != nil {
				continue // it has hung up
			}
			b, oob := make([]byte, 1<<16), make([]byte, 256)
			_, oobn, _, _, err := c.ReadMsgUnix(b, oob)
			if err, ok := err.(net.Error); ok && err.Timeout() {
				t.Fatal("no answer")
			}
			sent = append(sent, sentFiles(oob[:oobn])...)
		}
	})
}
