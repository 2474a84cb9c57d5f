package rdmanet

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/observe/dissect"
	"github.com/gosoftroce/rocev2/transport/tap"
	"github.com/gosoftroce/rocev2/verbs"
)

// TestKeyLog: a capture of a byte stream opens with the key log of one side,
// all generations of its keys, and shows the stream.
func TestKeyLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sw := fabric.NewSwitch(fabric.Config{})
		var captures [2]bytes.Buffer
		var taps [2]*tap.Link
		var devs [2]*verbs.Device
		for i, addr := range []string{"2001:db8::1", "2001:db8::2"} {
			port, err := sw.Attach(netip.MustParseAddr(addr))
			must(t, err)
			taps[i], err = tap.New(port, &captures[i])
			must(t, err)
			devs[i], err = verbs.OpenLink(taps[i], verbs.Config{Sealing: true, RekeyPackets: 20})
			must(t, err)
			t.Cleanup(func() { devs[i].Close() })
		}
		authority := testcert.New(t)
		at := net.JoinHostPort(devs[0].Addr().String(), "7471")
		lc := ListenConfig{Device: devs[0], TLS: &tls.Config{Certificates: []tls.Certificate{authority.Issue(t, "server", devs[0].Addr().String())}}}
		l, err := lc.Listen(t.Context(), Network, at)
		must(t, err)
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					io.Copy(c, c)
					c.Close()
				}()
			}
		}()
		var log bytes.Buffer
		d := Dialer{Device: devs[1], TLS: &tls.Config{RootCAs: authority.Pool, KeyLogWriter: &log}}
		c, err := d.dial(t.Context(), Network, at)
		must(t, err)
		sent := bytes.Repeat([]byte("a secret stream "), 20_000)
		go c.Write(sent)
		got := make([]byte, len(sent))
		_, err = io.ReadFull(c, got)
		must(t, err)
		must(t, c.Close())
		synctest.Wait()
		for i := range captures {
			must(t, taps[i].Flush())
			streamOpens(t, captures[i].Bytes(), log.String(), sent)
		}
	})
}

// streamOpens checks what a capture shows with a key log.
func streamOpens(t *testing.T, file []byte, log string, sent []byte) {
	t.Helper()
	if bytes.Contains(file, sent[:30]) {
		t.Error("the stream stands in the capture")
	}
	capture, err := dissect.Open(bytes.NewReader(file))
	must(t, err)
	must(t, capture.Keys().Follow(strings.NewReader(log), "log"))
	generations := map[uint8]bool{}
	payload := 0
	for {
		p, err := capture.Next()
		if err != nil {
			break
		}
		if !p.Sealed.Present {
			continue
		}
		if !p.Sealed.Opened || p.Malformed() || p.Sealed.ICRC != dissect.ICRCGood || p.Conn.Protocol() != dissect.ProtocolRsockets {
			t.Fatal(dissect.Line(p))
		}
		generations[p.Sealed.Generation()] = true
		payload += bytes.Count(p.Wire.Payload, []byte(" stream "))
	}
	if len(generations) < 5 || payload < 2*20_000*9/10 {
		t.Errorf("%d generations of keys, the text %d times", len(generations), payload)
	}
}
