package rdma

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/internal/testcable"
	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/observe/dissect"
	"github.com/gosoftroce/rocev2/transport/tap"
	"github.com/gosoftroce/rocev2/verbs"
)

// tappedNet is a secureNet with a capture of each cable, below of what seals.
type tappedNet struct {
	secureNet
	at       string
	captures [2]bytes.Buffer
	taps     [2]*tap.Link
}

// newTappedNet returns one; if a number of packets is given there are new keys
// after that many.
func newTappedNet(t *testing.T, addrs [2]string, network fabric.Config, packets ...uint64) *tappedNet {
	t.Helper()
	sw := fabric.NewSwitch(network)
	cfg := verbs.Config{Sealing: true}
	if len(packets) > 0 {
		cfg.RekeyPackets = packets[0]
	}
	n := &tappedNet{at: netip.AddrPortFrom(netip.MustParseAddr(addrs[0]), 7471).String()}
	for i, addr := range addrs {
		port := must1[*fabric.Port](t)(sw.Attach(netip.MustParseAddr(addr)))
		n.taps[i] = must1[*tap.Link](t)(tap.New(port, &n.captures[i]))
		n.cables[i] = testcable.New(n.taps[i])
		n.devs[i] = must1[*verbs.Device](t)(verbs.OpenLink(n.cables[i], cfg))
		t.Cleanup(func() { n.devs[i].Close() })
	}
	a := testcert.New(t)
	n.server = &tls.Config{Certificates: []tls.Certificate{a.Issue(t, "server", addrs[0])}, ClientCAs: a.Pool, ClientAuth: tls.RequireAndVerifyClientCert}
	n.client = &tls.Config{Certificates: []tls.Certificate{a.Issue(t, "client", "")}, RootCAs: a.Pool}
	return n
}

// talk has messages, WRITEs and READs cross a new connection.
func (n *tappedNet) talk(t *testing.T) {
	t.Helper()
	lc := ListenConfig{TLS: n.server, Device: n.devs[0]}
	lc.Export("shared", Region{Memory: make([]byte, 1<<16), Writable: true})
	l := must1[*Listener](t)(lc.Listen(t.Context(), n.at))
	defer l.Close()
	go func() {
		c, err := l.Accept(context.Background())
		if err != nil {
			return
		}
		for m, err := c.RecvMsg(context.Background()); err == nil; m, err = c.RecvMsg(context.Background()) {
			c.Send(context.Background(), m.Bytes())
			m.Release()
		}
		c.Close()
	}()
	d := Dialer{Device: n.devs[1], TLS: n.client}
	c := must1[*Conn](t)(d.Dial(testContext(t), n.at))
	for _, size := range []int{0, 3, 1000, 30_000} {
		echo(t, c, bytes.Repeat(secretText, 32)[:size])
	}
	r := must1[*RemoteRegion](t)(c.Region(t.Context(), "shared"))
	must1[int](t)(r.WriteAt(secretText, 100))
	back := make([]byte, len(secretText))
	must1[int](t)(r.ReadAt(back, 100))
	must(t, c.Close())
	synctest.Wait()
	for i := range n.taps {
		must(t, n.taps[i].Flush())
	}
}

// TestKeyLogOpens: with what the KeyLogWriter has got, every sealed packet of a
// capture can be opened by code that knows the format alone; each has the text,
// the queue pair and the ICRC that it should have.
func TestKeyLogOpens(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		addrs [2]string
		net   fabric.Config
		keys  uint64 // 0: one for all; else a new one after that many packets
	}{
		{"IPv4", [2]string{"192.0.2.1", "192.0.2.2"}, fabric.Config{}, 0},
		{"IPv6", [2]string{"2001:db8::1", "2001:db8::2"}, fabric.Config{}, 0},
		{"new keys", [2]string{"192.0.2.1", "192.0.2.2"}, fabric.Config{}, 3},
		{"a bad path", [2]string{"192.0.2.1", "192.0.2.2"}, fabric.Config{Seed: 3, Port: fabric.PortConfig{Loss: 0.1, Reorder: 0.1, Duplicate: 0.1}}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newTappedNet(t, c.addrs, c.net, c.keys)
				logs := [2]*bytes.Buffer{{}, {}}
				n.server.KeyLogWriter, n.client.KeyLogWriter = logs[0], logs[1]
				n.talk(t)
				if a, b := pspLines(logs[0].String()), pspLines(logs[1].String()); len(a) != 2 || len(b) != 2 || a[0] != b[1] || a[1] != b[0] {
					t.Fatalf("the two sides have logged other keys: %d, %d", len(a), len(b))
				}
				if !strings.Contains(logs[0].String(), "CLIENT_TRAFFIC_SECRET_0 ") {
					t.Error("the lines of TLS are missing")
				}
				for i := range n.captures {
					generations := opensWithout(t, n.captures[i].Bytes(), logs[i].String())
					if (generations > 2) != (c.keys > 0) {
						t.Errorf("packets of %d generations", generations)
					}
					opensWithDissect(t, n.captures[i].Bytes(), logs[1-i].String())
				}
			})
		})
	}
}

// pspLines are the lines of a log with a key.
func pspLines(log string) (lines []string) {
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, "ROCEV2_PSP ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// opensWithout opens a capture without the code of this software.
// It returns how many generations of keys there are.
func opensWithout(t *testing.T, file []byte, log string) (generations int) {
	t.Helper()
	if bytes.Contains(file, secretText[:20]) {
		t.Fatal("the secret stands in the capture")
	}
	list, inClear, err := openCapture(file, log)
	if err != nil || len(list) < 40 || inClear < 10 {
		t.Fatalf("%d sealed packets, %d in clear: %v", len(list), inClear, err)
	}
	secrets := 0
	opcodes, spis := map[byte]bool{}, map[uint32]bool{}
	for _, p := range list {
		opcodes[p.opcode()], spis[p.spi>>24] = true, true
		if p.destQPN() != p.spi&0xffffff || !p.icrcGood {
			t.Fatalf("SPI %#x, IV %d: queue pair %#x, PSN %d, ICRC %v", p.spi, p.iv, p.destQPN(), p.psn(), p.icrcGood)
		}
		if bytes.Contains(p.bth, secretText[:20]) {
			secrets++
		}
	}
	const readRequest, acknowledge = 0x0c, 0x11
	if secrets < 20 || !opcodes[readRequest] || !opcodes[acknowledge] {
		t.Errorf("%d packets with the secret, opcodes %v", secrets, opcodes)
	}
	return len(spis)
}

// opensWithDissect opens a capture as the tool does, and compares.
func opensWithDissect(t *testing.T, file []byte, log string) {
	t.Helper()
	capture := must1[*dissect.Capture](t)(dissect.Open(bytes.NewReader(file)))
	must(t, capture.Keys().Follow(strings.NewReader(log), "log"))
	list, _, err := openCapture(file, log)
	must(t, err)
	i := 0
	for {
		p, err := capture.Next()
		if err != nil {
			break
		}
		if !p.Sealed.Present {
			continue
		}
		if !p.Sealed.Opened || p.Sealed.ICRC != dissect.ICRCGood || p.Malformed() {
			t.Fatalf("%s", dissect.Line(p))
		}
		if want := &list[i]; uint32(p.Wire.BTH.PSN) != want.psn() || uint32(p.Wire.BTH.DestQPN) != want.destQPN() || p.Sealed.IV != want.iv {
			t.Fatalf("packet %d: %s", i, dissect.Line(p))
		}
		i++
	}
	if all := capture.Flows().Connections(); i != len(list) || len(all) != 1 || all[0].Malformed != 0 || all[0].Sealed[0].Refused+all[0].Sealed[1].Refused != 0 {
		t.Errorf("%d packets of %d, connections %d", i, len(list), len(all))
	}
}

// TestKeyLogOnlyOnRequest: nothing is written unless the configuration of the
// connection says so, whatever the environment says.
func TestKeyLogOnlyOnRequest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.log")
	t.Setenv("SSLKEYLOGFILE", file)
	synctest.Test(t, func(t *testing.T) {
		n := newTappedNet(t, [2]string{"192.0.2.1", "192.0.2.2"}, fabric.Config{})
		var log bytes.Buffer
		n.client.KeyLogWriter = &log
		n.talk(t)
		if len(pspLines(log.String())) != 2 {
			t.Errorf("%d lines at the side that asked for them", len(pspLines(log.String())))
		}
		log.Reset()
		n.client.KeyLogWriter = nil
		n.talk(t)
		if log.Len() > 0 {
			t.Error("keys were written without a request")
		}
	})
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was made: %v", err)
	}
}

// TestKeyLogOfChosenConfig: the configuration that a server chooses for a
// client counts, and not the one that it has beside.
func TestKeyLogOfChosenConfig(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newTappedNet(t, [2]string{"192.0.2.1", "192.0.2.2"}, fabric.Config{})
		var first, chosen bytes.Buffer
		n.server.KeyLogWriter = &first
		other := n.server.Clone()
		other.KeyLogWriter = &chosen
		n.server.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return other, nil }
		n.talk(t)
		if len(pspLines(first.String())) != 0 || len(pspLines(chosen.String())) != 2 {
			t.Errorf("%d lines for the first, %d for the chosen one", len(pspLines(first.String())), len(pspLines(chosen.String())))
		}
	})
}

// afterLines fails when it was given some lines of TLS.
type afterLines int

func (n *afterLines) Write(b []byte) (int, error) {
	if *n--; *n < 0 {
		return 0, errors.New("the disk is full")
	}
	return len(b), nil
}

// TestKeyLogFails: a key that cannot be written ends the handshake, as with
// TLS.
func TestKeyLogFails(t *testing.T) {
	t.Parallel()
	for _, lines := range []afterLines{0, 4, 5} {
		synctest.Test(t, func(t *testing.T) {
			n := newSecureNet(t, fabric.Config{})
			n.listen(t, ListenConfig{TLS: n.server})
			n.client.KeyLogWriter = &lines
			_, err := n.dial(t, n.client)
			if err == nil || !strings.Contains(err.Error(), "the disk is full") {
				t.Errorf("after %d lines: %v", lines, err)
			}
		})
	}
}

// TestKeyLogOfMany: connections that are made at a time share a writer that
// knows nothing of that.
func TestKeyLogOfMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecureNet(t, fabric.Config{})
		var log bytes.Buffer
		n.client.KeyLogWriter, n.server.KeyLogWriter = &log, &log
		n.listen(t, ListenConfig{TLS: n.server})
		const many = 20
		var wait sync.WaitGroup
		for i := range many {
			wait.Go(func() {
				c, err := n.dial(t, n.client)
				if err != nil {
					t.Error(err)
					return
				}
				echo(t, c, []byte(fmt.Sprint("message ", i)))
				c.Close()
			})
		}
		wait.Wait()
		synctest.Wait()
		lines := pspLines(log.String())
		distinct := map[string]bool{}
		for _, line := range lines {
			distinct[line] = true
		}
		if len(lines) != 4*many || len(distinct) != 2*many {
			t.Errorf("%d lines, %d keys, of %d connections", len(lines), len(distinct), many)
		}
	})
}
