package record_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/lab"
	"github.com/gosoftroce/rocev2/fabric/record"
	"github.com/gosoftroce/rocev2/internal/captures"
	"github.com/gosoftroce/rocev2/observe/dissect"
	"github.com/gosoftroce/rocev2/rocev2"
)

// play plays a scenario of a text, with a change.
func play(t *testing.T, text string, change func(*lab.Scenario)) *lab.Result {
	t.Helper()
	s, err := lab.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	change(&s)
	r, err := lab.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const lossy = `
name = "lossy"
seed = 5
cores = 2
[network]
topology = "star"
hosts = 6
lossy = true
buffer = "512KiB"
red = { kmin = "40KB", kmax = "200KB", pmax = 0.2 }
loss = 0.002
[[traffic]]
kind = "incast"
senders = 5
bytes = "512KiB"
[[traffic]]
kind = "flow"
from = 0
to = 3
bytes = "256KiB"
op = "read"
`

const pausing = `
[network]
topology = "star"
hosts = 6
rate = "40Gb/s"
profile = "dcqcn-paper"
alpha = -8
red = { kmax = "0B" }
[[traffic]]
kind = "incast"
senders = 5
bytes = "1MiB"
op = "send"
`

// captured plays a scenario with captures, by the names of their ports.
func captured(t *testing.T, text, ports string, snap int) (*lab.Result, map[string][]byte) {
	t.Helper()
	files, all := map[string]*bytes.Buffer{}, map[string]*record.Pcap{}
	r := play(t, text, func(s *lab.Scenario) {
		s.Output.Capture.Ports = ports
		names, err := lab.CapturePorts(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			files[name] = new(bytes.Buffer)
			if all[name], err = record.NewPcap(files[name], name, snap); err != nil {
				t.Fatal(err)
			}
		}
		s.Output.Capture.Take = func(p *lab.Packet) { all[p.Port].Take(p) }
	})
	done := map[string][]byte{}
	for name, p := range all {
		if err := p.Close(); err != nil || p.LeftOut() > 0 {
			t.Fatal(err, p.LeftOut())
		}
		done[name] = files[name].Bytes()
	}
	return r, done
}

// found is what dump finds in a capture.
type found struct {
	packets, marked, again, missing, cnps uint64
}

func dump(t *testing.T, capture []byte) (f found) {
	t.Helper()
	c, err := dissect.Open(bytes.NewReader(capture))
	if err != nil {
		t.Fatal(err)
	}
	for {
		p, err := c.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if p.Err != nil || p.ICRC != dissect.ICRCUnknown {
			t.Fatalf("frame %d: %v, ICRC %v", p.Number, p.Err, p.ICRC)
		}
		if p.IP.ECN() == 3 {
			f.marked++
		}
		if p.HasBTH && p.Wire.BTH.Opcode == rocev2.CNP {
			f.cnps++
		}
		f.packets++
	}
	for _, conn := range c.Flows().Connections() {
		n := conn.Totals()
		f.again += n.Retransmitted
		f.missing += n.Missing
	}
	return f
}

// A capture has what the result counts: dump finds the packets that senders
// have sent again at the senders, and what was lost at the receiver.
func TestDumpFindsWhatTheResultCounts(t *testing.T) {
	t.Parallel()
	for _, snap := range []int{record.DefaultSnap, 0} {
		text := lossy[:strings.LastIndex(lossy, "[[traffic]]")] // WRITEs alone
		r, files := captured(t, text, "all", snap)
		if r.Stats.Retransmits == 0 || r.Totals.Dropped() == 0 || r.Totals.Marks == 0 {
			t.Fatalf("%+v: this is no test", r.Summary())
		}
		var senders found
		for name, capture := range files {
			if f := dump(t, capture); name != "h0" {
				senders.again += f.again
				senders.cnps += f.cnps
			}
		}
		receiver := dump(t, files["h0"])
		if senders.again != r.Stats.Retransmits || senders.cnps != r.Stats.CNPsReceived {
			t.Errorf("snap %d: dump finds %d packets sent again and %d notifications, the result counts %d and %d", snap, senders.again, senders.cnps, r.Stats.Retransmits, r.Stats.CNPsReceived)
		}
		if receiver.marked != r.Stats.ECNMarked {
			t.Errorf("snap %d: %d packets came marked, the result counts %d", snap, receiver.marked, r.Stats.ECNMarked)
		}
		if receiver.missing == 0 || receiver.missing > r.Totals.Dropped() {
			t.Errorf("snap %d: %d packets are missing at the receiver; %d were dropped", snap, receiver.missing, r.Totals.Dropped())
		}
		if all := receiver.packets; all == 0 || len(files) != 6 {
			t.Errorf("%d packets at the receiver, of %d files", all, len(files))
		}
	}
}

// The lengths are those on the wire, whatever is captured, and times never go
// back.
func TestLengths(t *testing.T) {
	t.Parallel()
	r, files := captured(t, lossy, "s0.0 h0", 100)
	for name, capture := range files {
		source, err := dissect.OpenFile(bytes.NewReader(capture))
		if err != nil {
			t.Fatal(err)
		}
		var f dissect.Frame
		var bytesOut, last uint64
		for {
			err := source.Next(&f)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(f.Data) > 100 || f.Length < 60 || len(f.Data) > f.Length {
				t.Fatalf("%d bytes of %d", len(f.Data), f.Length)
			}
			at := uint64(f.Time.UnixNano())
			if at < last || at > uint64(r.End/1000) {
				t.Fatalf("a frame of %d ns after one of %d; the run ends at %v", at, last, r.End)
			}
			last = at
			if f.Data[6] == 2 && f.Data[7] == 1 { // sent by the switch
				bytesOut += uint64(f.Length) + 24 // FCS, preamble and gap
			}
		}
		if want := portBytes(t, r, lossy, "s0.0"); bytesOut > want || bytesOut < want*99/100 { // some were lost on the cable
			t.Errorf("%s: the switch has sent %d bytes, %d of them are in the capture", name, want, bytesOut)
		}
	}
}

func portBytes(t *testing.T, r *lab.Result, text, name string) uint64 {
	t.Helper()
	again := play(t, text, func(s *lab.Scenario) { s.Output.Record = true })
	if again.Digest != r.Digest {
		t.Error("another run")
	}
	for i := range again.Ports {
		if p := &again.Ports[i]; again.PortName(p.Node, p.Port) == name {
			return p.Bytes
		}
	}
	t.Fatalf("there is no port %s", name)
	return 0
}

// Pauses are MAC control frames, by the classes that they are about.
func TestPauseFrames(t *testing.T) {
	t.Parallel()
	r, files := captured(t, pausing, "all", record.DefaultSnap)
	xoffs, xons := uint64(0), uint64(0)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		source, err := dissect.OpenFile(bytes.NewReader(files[name]))
		if err != nil {
			t.Fatal(err)
		}
		var f dissect.Frame
		for source.Next(&f) == nil {
			if binary.BigEndian.Uint16(f.Data[12:]) != 0x8808 {
				continue
			}
			if !bytes.Equal(f.Data[:6], []byte{1, 0x80, 0xc2, 0, 0, 1}) || len(f.Data) != 60 || binary.BigEndian.Uint16(f.Data[14:]) != 0x0101 {
				t.Fatalf("% x", f.Data)
			}
			mask, paused := binary.BigEndian.Uint16(f.Data[16:]), uint16(0)
			for class := range 8 {
				if binary.BigEndian.Uint16(f.Data[18+2*class:]) == 0xffff {
					paused |= 1 << class
				}
			}
			if mask == 0 || paused&^mask != 0 {
				t.Fatalf("classes %#x, paused %#x", mask, paused)
			}
			if paused != 0 {
				xoffs++
			} else {
				xons++
			}
		}
	}
	if xoffs != r.Totals.XOFFs || xons != r.Totals.XONs || xoffs == 0 {
		t.Errorf("%d pauses and %d ends in captures; the result counts %d and %d", xoffs, xons, r.Totals.XOFFs, r.Totals.XONs)
	}
}

// Captures are the same bytes each time.
func TestCapturesRepeat(t *testing.T) {
	t.Parallel()
	_, first := captured(t, lossy, "h0 s0.3", record.DefaultSnap)
	_, again := captured(t, lossy, "h0 s0.3", record.DefaultSnap)
	for name := range first {
		if !bytes.Equal(first[name], again[name]) {
			t.Errorf("%s: other bytes", name)
		}
	}
}

// A capture is bounded, and counts what it has left out; an error of the file
// shows at the end.
func TestPcapBounds(t *testing.T) {
	t.Parallel()
	p, err := record.NewPcap(io.Discard, "h0", 0)
	if err != nil {
		t.Fatal(err)
	}
	for range record.MostPackets + 7 {
		p.Take(&lab.Packet{Pause: true, Mask: 8, Off: 8})
	}
	if err := p.Close(); err != nil || p.LeftOut() != 7 {
		t.Errorf("%v, %d left out", err, p.LeftOut())
	}
	if p, err = record.NewPcap(full{}, "h0", 0); err != nil {
		t.Fatal(err)
	}
	for range 10_000 {
		p.Take(&lab.Packet{Pause: true})
	}
	if err := p.Close(); !errors.Is(err, errFull) {
		t.Errorf("of a disk that is full: %v", err)
	}
}

var errFull = errors.New("no space left")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

// Wireshark reads captures, with all headers and the comment, and finds nothing
// malformed.
func TestTshark(t *testing.T) {
	t.Parallel()
	_, files := captured(t, pausing, "h1 h0", record.DefaultSnap)
	for _, name := range []string{"h0", "h1"} {
		file := filepath.Join(t.TempDir(), name+".pcapng")
		if err := os.WriteFile(file, files[name], 0o666); err != nil {
			t.Fatal(err)
		}
		fields := []string{"frame.len", "frame.time_epoch", "eth.type", "ip.checksum.status", "infiniband.bth.opcode", "infiniband.bth.psn", "_ws.malformed", "frame.interface_name", "macc.cbfc.enbv"}
		rows := captures.Tshark(t, file, []string{"-o", "ip.check_checksum:TRUE"}, fields)
		kinds := map[string]int{}
		for i, row := range rows {
			row = append(row, make([]string, len(fields)-len(row))...)
			kinds[row[2]]++
			if row[6] != "" || row[7] != name || row[2] == "0x0800" && (row[4] == "" || row[5] == "" || row[3] != "1") || row[2] == "0x8808" && row[8] == "" {
				t.Fatalf("%s, frame %d: %q", name, i+1, row)
			}
		}
		if kinds["0x0800"] == 0 || name == "h1" && kinds["0x8808"] == 0 || len(kinds) > 2 {
			t.Errorf("%s: %v", name, kinds)
		}
	}
}
