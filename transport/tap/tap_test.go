package tap_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/gopacket"
	gplayers "github.com/google/gopacket/layers"
	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/internal/captures"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/layers"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/tap"
	"github.com/gosoftroce/rocev2/transport/udp"
)

func packet(psn, n int) []byte {
	p := rocev2.Packet{
		BTH:     rocev2.BTH{Opcode: rocev2.RCSendOnly, PKey: rocev2.DefaultPKey, DestQPN: 7, PSN: rocev2.PSN(psn)},
		Payload: bytes.Repeat([]byte{byte(psn)}, n),
	}
	return p.AppendTo(nil)
}

func send(t *testing.T, l transport.Link, p transport.Path, sizes ...int) {
	t.Helper()
	path := transport.NewPath(l.Addr(), p)
	b := transport.NewTxBatch(1 << 18)
	for i, n := range sizes {
		b.Commit(copy(b.Room(), packet(i, n)), path)
	}
	if err := l.Send(b); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, l transport.Link, n int) {
	t.Helper()
	b := transport.NewRxBatch(8)
	for n > 0 {
		if err := l.Wait(); err != nil {
			t.Fatal(err)
		}
		k, err := l.Recv(b)
		if err != nil {
			t.Fatal(err)
		}
		n -= k
	}
}

// frames reads a capture back.
func frames(t *testing.T, capture []byte) []gopacket.Packet {
	t.Helper()
	list, link := captures.Frames(t, bytes.NewReader(capture))
	if link != gplayers.LinkTypeRaw {
		t.Fatalf("link type %v", link)
	}
	var all []gopacket.Packet
	for _, data := range list {
		first := gplayers.LayerTypeIPv4
		if data[0]>>4 == 6 {
			first = gplayers.LayerTypeIPv6
		}
		all = append(all, gopacket.NewPacket(data, first, gopacket.Default))
	}
	return all
}

// check finds every frame decodable, its checksums right and its ICRC matching.
func check(t *testing.T, all []gopacket.Packet) {
	t.Helper()
	for i, p := range all {
		if e := p.ErrorLayer(); e != nil {
			t.Errorf("frame %d: %v", i, e.Error())
			continue
		}
		if err := layers.CheckICRC(p); err != nil {
			t.Errorf("frame %d: %v", i, err)
		}
		udp := p.Layer(gplayers.LayerTypeUDP).(*gplayers.UDP)
		if err := udp.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
			t.Fatal(err)
		}
		// gopacket computes the checksums anew when it serialises.
		buf := gopacket.NewSerializeBuffer()
		again := []gopacket.SerializableLayer{udp, gopacket.Payload(udp.Payload)}
		if ip, ok := p.NetworkLayer().(*gplayers.IPv4); ok {
			again = append([]gopacket.SerializableLayer{ip}, again...)
		} else {
			again = append([]gopacket.SerializableLayer{p.NetworkLayer().(*gplayers.IPv6)}, again...)
		}
		if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{ComputeChecksums: true}, again...); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(buf.Bytes(), p.Data()) {
			t.Errorf("frame %d: gopacket makes other headers:\n%x\n%x", i, p.Data()[:48], buf.Bytes()[:48])
		}
	}
}

// tshark finds no malformed frame and no bad checksum.
func tshark(t *testing.T, capture []byte, want int) {
	t.Run("tshark", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "capture.pcapng")
		if err := os.WriteFile(file, capture, 0o600); err != nil {
			t.Fatal(err)
		}
		all := captures.Tshark(t, file, []string{"-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"},
			[]string{"_ws.malformed", "udp.checksum.status", "ip.checksum.status", "infiniband.bth.opcode"})
		if len(all) != want {
			t.Errorf("tshark shows %d frames, want %d", len(all), want)
		}
		for i, f := range all {
			if len(f) != 4 || f[0] != "" || f[1] != "1" || f[2] == "0" || f[3] != "4" {
				t.Errorf("frame %d: malformed, UDP checksum status, IP checksum status, opcode: %q", i, f)
			}
		}
	})
}

func TestCapture(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ a, b string }{{"10.1.2.3", "10.1.2.4"}, {"fd00::1", "fd00::2"}} {
		t.Run(c.a, func(t *testing.T) {
			t.Parallel()
			a, b := fabric.Pair(netip.MustParseAddr(c.a), netip.MustParseAddr(c.b))
			defer b.Close()
			var capture bytes.Buffer
			l, err := tap.New(a, &capture)
			if err != nil {
				t.Fatal(err)
			}
			if port, err := transport.OpenSourcePort(l, 50123, true); port != 50123 || err != nil {
				t.Errorf("source port: %d, %v", port, err)
			}
			send(t, l, transport.Path{Dst: b.Addr(), TrafficClass: 0x62, SrcPort: 50123, HopLimit: 3}, 0, 1, 256, 4096)
			send(t, b, transport.Path{Dst: a.Addr(), TrafficClass: 0x18}, 64, 7)
			receive(t, l, 2)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			all := frames(t, capture.Bytes())
			if len(all) != 6 {
				t.Fatalf("%d frames, want 4 sent and 2 received", len(all))
			}
			check(t, all)
			udp := all[0].Layer(gplayers.LayerTypeUDP).(*gplayers.UDP)
			if udp.SrcPort != 50123 || udp.DstPort != 4791 {
				t.Errorf("ports %d to %d", udp.SrcPort, udp.DstPort)
			}
			if got, want := all[4].NetworkLayer().NetworkFlow().String(), c.b+"->"+c.a; got != want {
				t.Errorf("received frame is %s, want %s", got, want)
			}
			tshark(t, capture.Bytes(), 6)
		})
	}
}

// Segments of an offloaded run have the Identification that they were sealed
// for.
func TestCaptureUDP(t *testing.T) {
	t.Parallel()
	open := func(s string) transport.Link {
		l, err := udp.Open(netip.MustParseAddr(s), udp.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	net := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), rand.IntN(256)) // no other test has it
	a, b := open(net+"1"), open(net+"2")
	var ca, cb bytes.Buffer
	la, err := tap.New(a, &ca)
	if err != nil {
		t.Fatal(err)
	}
	lb, err := tap.New(b, &cb)
	if err != nil {
		t.Fatal(err)
	}
	send(t, la, transport.Path{Dst: b.Addr()}, 1024, 1024, 1024, 512, 1024)
	receive(t, lb, 5)
	if err := errors.Join(la.Close(), lb.Close()); err != nil {
		t.Fatal(err)
	}
	for _, capture := range [][]byte{ca.Bytes(), cb.Bytes()} {
		all := frames(t, capture)
		check(t, all)
		var ids []uint16
		for _, p := range all {
			ids = append(ids, p.NetworkLayer().(*gplayers.IPv4).Id)
		}
		want := "[0 1 2 3 0]"
		if !a.Capabilities().SegmentOffload {
			want = "[0 0 0 0 0]"
		}
		if got := fmt.Sprint(ids); got != want {
			t.Errorf("Identifications %v, want %v", got, want)
		}
		tshark(t, capture, 5)
	}
}

func TestConcurrent(t *testing.T) {
	t.Parallel()
	a, b := fabric.Pair(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"))
	defer b.Close()
	var capture bytes.Buffer
	l, err := tap.New(a, &capture)
	if err != nil {
		t.Fatal(err)
	}
	const n = 500
	var wg sync.WaitGroup
	for _, f := range []func(){
		func() {
			for range n {
				send(t, l, transport.Path{Dst: b.Addr()}, 64)
			}
		},
		func() {
			for range n {
				send(t, b, transport.Path{Dst: a.Addr()}, 64)
			}
		},
		func() { receive(t, l, n) },
		func() {
			for range 10 {
				if err := l.Flush(); err != nil {
					t.Error(err)
				}
			}
		},
	} {
		wg.Go(f)
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	all := frames(t, capture.Bytes())
	if len(all) != 2*n {
		t.Errorf("%d frames, want %d", len(all), 2*n)
	}
	check(t, all)
}

type broken struct{ left int }

var errDisk = errors.New("disk full")

func (b *broken) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errDisk
	}
	return len(p), nil
}

// An error of the capture does not stop the link, and Close reports it.
func TestWriteError(t *testing.T) {
	t.Parallel()
	a, b := fabric.Pair(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"))
	defer b.Close()
	l, err := tap.New(a, &broken{left: 6000})
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		send(t, l, transport.Path{Dst: b.Addr()}, 4096)
	}
	receive(t, b, 10)
	if err := l.Close(); !errors.Is(err, errDisk) {
		t.Errorf("close: %v", err)
	}
	if err := l.Wait(); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("wait: %v", err)
	}
}
