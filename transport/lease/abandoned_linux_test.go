//go:build !portable

package lease

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// abandon leaves the socket of an owner that has been killed, and returns its
// path.
func abandon(t *testing.T, addr netip.Addr) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv(ProgramsEnv, dir)
	if err := os.Mkdir(filepath.Join(dir, "port"), 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "port", SocketName(addr, 0))
	door := doorAt(t, path)
	door.SetUnlinkOnClose(false)
	door.Close()
	return path
}

func doorAt(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	door, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	return door
}

// Where an owner was killed, one waits for the next owner, and asks that.
func TestOpenWaitsForTheNextOwner(t *testing.T) {
	addr := netip.MustParseAddr("127.77.1.1")
	path := abandon(t, addr)
	synctest.Test(t, func(t *testing.T) {
		got := make(chan error, 1)
		go func() {
			_, err := Open(addr, Config{})
			got <- err
		}()
		synctest.Wait()
		select {
		case err := <-got:
			t.Fatalf("it does not wait: %v", err)
		default:
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		door := doorAt(t, path)
		defer door.Close()
		<-time.After(restartLook) // in a bubble: until Open looks again
		conn, err := door.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		no := Message{Refused: &Refusal{Reason: NoSlot, Text: "none"}}
		if _, err := conn.Write(no.Append(nil)); err != nil {
			t.Fatal(err)
		}
		if err, refused := <-got, (*Refusal)(nil); !errors.As(err, &refused) || refused.Reason != NoSlot {
			t.Errorf("%v", err)
		}
	})
}

// Where none comes, the wait ends. Where none was, there is none.
func TestOpenWaitsNoLonger(t *testing.T) {
	addr := netip.MustParseAddr("127.77.1.2")
	path := abandon(t, addr)
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if _, err := Open(addr, Config{}); !errors.Is(err, ErrNoOwner) {
			t.Error(err)
		}
		if took := time.Since(begin); took < restartTime || took > 2*restartTime {
			t.Errorf("it waits for %v", took)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		begin = time.Now()
		if _, err := Open(addr, Config{}); !errors.Is(err, ErrNoOwner) {
			t.Error(err)
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("it waits for %v where no owner was", took)
		}
	})
}
