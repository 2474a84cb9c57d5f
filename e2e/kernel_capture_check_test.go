//go:build linux

package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
)

// The captures of two kernels talking to each other must pass what every cell
// asks of its capture.
func TestCheckCapture(t *testing.T) {
	t.Parallel()
	server, client := netip.MustParseAddr("198.18.0.2"), netip.MustParseAddr("198.18.0.4")
	sum, err := checkCapture(golden("ib_write_bw"))
	if err != nil {
		t.Fatal(err)
	}
	if s, c := sum[server], sum[client]; s == nil || c == nil || s.payload != 0 || c.payload != 50000 || c.changed != "" {
		t.Errorf("5 WRITEs of 10000 bytes: server %+v, client %+v", s, c)
	}
	if sum, err = checkCapture(golden("ib_atomic_bw")); err != nil || sum[client].atomics != 5 {
		t.Errorf("5 atomics: %+v, %v", sum[client], err)
	}
	if sum, err = checkCapture(golden("rc_pingpong_v6")); err != nil || len(sum) != 2 {
		t.Errorf("IPv6: %d senders, %v", len(sum), err)
	}
}

func TestCheckCaptureFindsDamage(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(golden("ib_write_bw"))
	if err != nil {
		t.Fatal(err)
	}
	first := 24 + 16 // file header, record header
	length := int(binary.LittleEndian.Uint32(b[24+8:]))
	b[first+length-5] ^= 1 // in the first frame's payload or headers
	file := filepath.Join(t.TempDir(), "damaged.pcap")
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := checkCapture(file); err == nil || !strings.Contains(err.Error(), "frame 1 ") {
		t.Errorf("a damaged first frame: %v", err)
	}
}

func golden(name string) string {
	return filepath.Join("..", "rocev2", "testdata", "golden", name+".pcap")
}

func TestTrafficChanged(t *testing.T) {
	t.Parallel()
	packet := func(op rocev2.Opcode, psn rocev2.PSN) *rocev2.Packet {
		return &rocev2.Packet{BTH: rocev2.BTH{Opcode: op, DestQPN: 17, PSN: psn}}
	}
	tr := newTraffic()
	for i, p := range []*rocev2.Packet{
		packet(rocev2.RCWriteFirst, 1), packet(rocev2.RCWriteMiddle, 2), packet(rocev2.RCWriteLast, 3),
		packet(rocev2.RCWriteMiddle, 2), packet(rocev2.RCWriteLast, 3), // go-back-N
		packet(rocev2.RCReadRequest, 4), packet(rocev2.RCReadRequest, 5),
		packet(rocev2.RCAcknowledge, 3), // the other direction's PSN
	} {
		if tr.add(i, p); tr.changed != "" {
			t.Fatalf("packet %d: %s", i, tr.changed)
		}
	}
	if tr.add(9, packet(rocev2.RCWriteMiddle, 3)); tr.changed == "" {
		t.Error("a PSN that was sent again as another packet was not noticed")
	}
}

// TestUnheard excuses a server only where the network has lost what it waits
// for.
func TestUnheard(t *testing.T) {
	t.Parallel()
	const client = "198.18.0.4"
	quiet := fmt.Errorf("server: %w", errors.New("no progress"))
	for name, tt := range map[string]struct {
		err    error
		lossy  bool
		dreq   int
		excuse bool
	}{
		"lost":             {err: &forsaken{quiet}, lossy: true, excuse: true},
		"heard":            {err: &forsaken{quiet}, lossy: true, dreq: 1},
		"nothing is lost":  {err: &forsaken{quiet}},
		"the client fails": {err: quiet, lossy: true},
		"both are well":    {lossy: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &run{cell: cmCell{tool: "rping", lossy: tt.lossy}, clientAddr: client}
			sum := map[netip.Addr]*traffic{netip.MustParseAddr(client): {managed: cmSent{req: 1, dreq: tt.dreq}}}
			var fault *kernelFault
			switch err := r.unheard(tt.err, sum); {
			case errors.As(err, &fault) != tt.excuse:
				t.Errorf("%v", err)
			case !tt.excuse && err != tt.err:
				t.Errorf("the error changed to %v", err)
			}
		})
	}
}
