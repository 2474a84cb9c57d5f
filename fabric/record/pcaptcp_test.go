package record_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/record"
	"github.com/gosoftroce/rocev2/internal/captures"
)

const besideTCP = `
[network]
topology = "star"
hosts = 4
queue_max = "60KB"
[[traffic]]
kind = "flow"
to = 3
bytes = "100KB"
[[traffic]]
kind = "incast"
senders = 3
bytes = "200KB"
transport = "tcp"
tcp = { min_rto = "5ms", ecn = true }
`

// A capture has the segments of TCP as they are on the wire, with checksums,
// from the SYN to the FIN, and as many of them as the result counts.
func TestPcapOfTCP(t *testing.T) {
	t.Parallel()
	for _, snap := range []int{record.DefaultSnap, 0} {
		r, files := captured(t, besideTCP, "h0-3", snap)
		var segments, syns, fins, selective, echoes, rest uint64
		for name, file := range files {
			frames, _ := captures.Frames(t, bytes.NewReader(file))
			for i, b := range frames {
				ip := b[14:]
				if ip[9] != 6 {
					rest++
					continue
				}
				length := int(binary.BigEndian.Uint16(ip[2:])) - 20
				if sum := sumOf(ip[:20], 0); sum != 0xffff {
					t.Fatalf("%s, frame %d: the sum of the IP header is %#x", name, i+1, sum)
				}
				tcp := ip[20:min(len(ip), 20+length)]
				if sum := sumOf(tcp, sumOf(ip[12:20], uint32(6+length))); sum != 0xffff { // what is cut off is zeros
					t.Fatalf("%s, frame %d: the sum of the TCP header is %#x", name, i+1, sum)
				}
				header, flags := int(tcp[12]>>4)*4, tcp[13]
				sent := b[7] == 0 && "h"+strconv.Itoa(int(b[11])) == name
				switch {
				case !sent:
					continue
				case length > header || flags&3 != 0 && flags&0x12 != 0x12:
					segments++
				case header > 20:
					selective++
				}
				if flags&0x12 == 0x02 {
					syns++
				}
				if flags&1 != 0 {
					fins++
				}
				if flags&0x12 == 0x12 && flags&0x40 != 0 {
					echoes++
				}
			}
		}
		if segments != r.TCP.Segments || syns < 3 || fins < 3 || selective == 0 || echoes < 3 || rest == 0 || r.TCP.Retransmits == 0 {
			t.Errorf("snap %d: %d segments, %d SYN, %d FIN, %d selective, %d that agree to ECN, %d others; %+v", snap, segments, syns, fins, selective, echoes, rest, r.TCP)
		}
	}
}

// sumOf is the sum of RFC 1071, with a sum before it.
func sumOf(b []byte, sum uint32) uint32 {
	for i, c := range b {
		sum += uint32(c) << (8 * (1 - i&1))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return sum
}

// Wireshark dissects them, and finds nothing malformed and no wrong checksum.
func TestTsharkOfTCP(t *testing.T) {
	t.Parallel()
	_, files := captured(t, besideTCP, "h0", record.DefaultSnap)
	file := filepath.Join(t.TempDir(), "h0.pcapng")
	if err := os.WriteFile(file, files["h0"], 0o666); err != nil {
		t.Fatal(err)
	}
	fields := []string{"ip.proto", "tcp.checksum.status", "ip.checksum.status", "_ws.malformed", "tcp.options.mss_val", "tcp.options.sack_le"}
	rows := captures.Tshark(t, file, []string{"-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE"}, fields)
	syns, selective, tcp := 0, 0, 0
	for i, row := range rows {
		row = append(row, make([]string, len(fields)-len(row))...)
		// A status of 1 is good, 0 bad, 2 that not all is there.
		if row[3] != "" || row[2] != "1" || row[0] == "6" && row[1] != "1" && row[1] != "2" {
			t.Fatalf("frame %d: %q", i+1, row)
		}
		if row[0] == "6" {
			tcp++
		}
		if row[4] == "1460" {
			syns++
		}
		if row[5] != "" {
			selective++
		}
	}
	if syns != 6 || selective == 0 || tcp == 0 {
		t.Errorf("%d SYN, %d selective, %d of TCP", syns, selective, tcp)
	}
}
