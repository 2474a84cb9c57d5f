package rcopy

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rdma/rdmanet"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// TestMessagesAreByteExact compares with what the original sends.
func TestMessagesAreByteExact(t *testing.T) {
	t.Parallel()
	for want, got := range map[string][]byte{
		"0001 1800 a4810000 0000000000000000 2f742f6100000000":                 openMessage("/t/a", 0o100644),
		"0001 2000 a4810000 0000000000000000 31323334353637380000000000000000": openMessage("12345678", 0o100644),
		"0003 1800 00000000 0000000000000000 0001000000000000":                 writeMessage(256),
		"0002 1000 00000000 0000000000000000":                                  closeMessage(),
	} {
		if raw, _ := hex.DecodeString(strings.ReplaceAll(want, " ", "")); !bytes.Equal(got, raw) {
			t.Errorf("%x, expected %s", got, want)
		}
	}
	for _, bad := range []string{"0101 1000", "0001 0f00"} {
		raw, _ := hex.DecodeString(strings.ReplaceAll(bad, " ", "") + strings.Repeat("00", 12))
		if _, err := parseHeader(raw); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// place is a server and the device of its clients.
type place struct {
	dev    *verbs.Device
	at     netip.AddrPort
	root   string
	failed chan error
}

func serve(t *testing.T, c Config) *place {
	t.Helper()
	a, b := verbstest.Devices(t)
	p := &place{dev: b, at: netip.AddrPortFrom(a.Addr(), DefaultPort), root: t.TempDir(), failed: make(chan error, 100)}
	c.Root = p.root
	c.OnFailed = func(_ string, why error) { p.failed <- why }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, a, p.at, c) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p
}

// copy copies data to a name at the server, which may not listen yet.
func (p *place) copy(t *testing.T, data []byte, name string) (Result, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "source")
	if err := os.WriteFile(file, data, 0o640); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		res, err := Run(t.Context(), p.dev, p.at, f, name, Config{IdleTimeout: time.Minute})
		if err == nil || !strings.Contains(err.Error(), "no program listens") {
			return res, err
		}
	}
}

func TestCopy(t *testing.T) {
	t.Parallel()
	p := serve(t, Config{IdleTimeout: time.Minute})
	for _, size := range []int{0, 1, 100_000, 3 << 20} {
		data := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
		res, err := p.copy(t, data, "/file")
		if err != nil || res.Bytes != uint64(size) {
			t.Fatalf("%d bytes: %+v, %v", size, res, err)
		}
		got, err := os.ReadFile(filepath.Join(p.root, "file"))
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes: there are %d, %v", size, len(got), err)
		}
	}
	info, err := os.Stat(filepath.Join(p.root, "file"))
	if err != nil || info.Mode().Perm()&^0o640 != 0 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
}

// No name leads out of the directory.
func TestNamesStayInside(t *testing.T) {
	t.Parallel()
	p := serve(t, Config{})
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(p.root, "link")); err != nil {
		t.Skipf("this user may not make symbolic links (on Windows: turn on developer mode, or run as administrator): %v", err)
	}
	if _, err := p.copy(t, []byte("x"), "../../../../../up"); err != nil {
		t.Errorf("dots: %v", err)
	}
	if _, err := os.Stat(filepath.Join(p.root, "up")); err != nil {
		t.Errorf("dots are not taken inside: %v", err)
	}
	for _, name := range []string{"link/file", "missing/file", "/"} {
		var status *StatusError
		if _, err := p.copy(t, []byte("x"), name); !errors.As(err, &status) || status.Command != "OPEN" {
			t.Errorf("%s: %v", name, err)
		}
		<-p.failed
	}
	if left, _ := os.ReadDir(outside); len(left) > 0 {
		t.Errorf("outside is %v", left)
	}
}

// A client that does not keep to the protocol gets an answer, and is left.
func TestBadClients(t *testing.T) {
	t.Parallel()
	p := serve(t, Config{MaxSize: 1000})
	if _, err := p.copy(t, make([]byte, 1001), "large"); !errors.Is(err, syscall.EFBIG) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a file that is too large: %v", err)
	}
	<-p.failed
	unknown := header{command: 9, length: headerLen}
	for why, raw := range map[string][]byte{
		"unknown command":  unknown.appendTo(nil),
		"no file":          writeMessage(5),
		"close nothing":    closeMessage(),
		"version":          bytes.Repeat([]byte{1}, 16),
		"cut off":          openMessage("file", 0)[:20],
		"no name":          (&header{command: cmdOpen, length: headerLen}).appendTo(nil),
		"a larger file":    slices.Concat(openMessage("a", 0o644), writeMessage(1000), make([]byte, 1000), writeMessage(1), []byte{0}),
		"two files":        append(openMessage("a", 0o644), openMessage("b", 0o644)...),
		"a longer message": (&header{command: cmdOpen, length: 65535}).appendTo(nil),
	} {
		d := rdmanet.Dialer{Device: p.dev}
		nc, err := d.DialContext(t.Context(), "rdma", p.at.String())
		if err != nil {
			t.Fatal(err)
		}
		nc.Write(raw)
		nc.(*rdmanet.Conn).CloseWrite()
		if _, err := io.ReadAll(nc); err != nil {
			t.Errorf("%s: %v", why, err)
		}
		nc.Close()
		if err := <-p.failed; err == nil {
			t.Errorf("%s: no error", why)
		}
	}
}
