package dissect_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"testing"

	"github.com/gosoftroce/rocev2/observe/dissect"
	"github.com/gosoftroce/rocev2/rocev2"
)

// showAll makes everything of a capture that can be made, and checks what must
// hold for every input.
func showAll(t *testing.T, c *dissect.Capture) {
	t.Helper()
	var stats dissect.Stats
	chart := dissect.NewChart(0, 20)
	filter, err := dissect.ParseFilter("nak or gap or opcode=SEND_ONLY and qp<100 or rtt>1ms or host 10.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	for {
		p, err := c.Next()
		if err != nil {
			break
		}
		if bytes.ContainsRune([]byte(dissect.Line(p)), '\n') {
			t.Fatalf("two lines: %q", dissect.Line(p))
		}
		if b := dissect.JSON(nil, p); !json.Valid(b) {
			t.Fatalf("no JSON: %s", b)
		}
		if err := dissect.Detail(io.Discard, p, true); err != nil {
			t.Fatal(err)
		}
		if p.Err == nil && p.Info().Name == "" {
			t.Fatal("an unknown opcode is no error")
		}
		if p.Acked < 0 || p.Missing < 0 || p.RTT < 0 || p.Since < 0 {
			t.Fatalf("negative: %+v", p.Analysis)
		}
		filter.Match(p)
		stats.Add(p)
		chart.Add(p)
	}
	f := c.Flows()
	for _, conn := range f.Connections() {
		for i := range conn.Requests {
			if s := &conn.Requests[i]; s.Completed > s.Messages {
				t.Fatalf("%d of %d messages completed", s.Completed, s.Messages)
			}
		}
	}
	var svg bytes.Buffer
	for _, err := range []error{
		dissect.WriteStats(io.Discard, &stats, f), dissect.WriteStatsJSON(io.Discard, &stats, f),
		dissect.WriteConnections(io.Discard, &stats, f), dissect.WriteConnectionsJSON(io.Discard, &stats, f),
		chart.WriteText(io.Discard, 80), chart.WriteSVG(&svg),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzCapture: no file panics, hangs or takes memory without bound.
func FuzzCapture(f *testing.F) {
	for _, name := range []string{"rping", "udaddy", "ib_atomic_bw"} {
		b, err := os.ReadFile(golden + name + ".pcap")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		source, err := dissect.OpenFile(bytes.NewReader(b))
		if err != nil {
			f.Fatal(err)
		}
		var ng bytes.Buffer
		w := dissect.NewWriter(&ng)
		for range 5 {
			var frame dissect.Frame
			if err := source.Next(&frame); err != nil {
				f.Fatal(err)
			}
			_ = w.Write(&frame)
		}
		_ = w.Flush()
		f.Add(ng.Bytes())
	}
	sealed, log := conversation(f)
	f.Add(withSecrets(f, sealed, log))
	f.Fuzz(func(t *testing.T, b []byte) {
		source, err := dissect.OpenFile(bytes.NewReader(b))
		if err != nil {
			return
		}
		showAll(t, dissect.New(source, dissect.Limits{Connections: 8, Memory: 1 << 16}))
	})
}

// FuzzFlows: no sequence of packets confuses the analysis so that it panics.
// Each 8 bytes are a packet, with an ICRC that is right, between two hosts with
// few queue pairs.
func FuzzFlows(f *testing.F) {
	f.Add([]byte("\x04\x00\x00\x00\x01\x00\x05\x10\x11\x81\x00\x00\x01\x1f\x05\x00"))
	f.Add([]byte("\x0c\x00\x00\x00\x01\x40\x05\x10\x0d\x81\x00\x00\x01\x1f\x05\xff\x0f\x81\x00\x00\x04\x1f\x05\x10"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &traffic{}
		for ; len(b) >= 8 && len(c.frames) < 200; b = b[8:] {
			src, dst := hostA, hostB
			if b[1]&0x80 != 0 {
				src, dst = dst, src
			}
			p := rocev2.Packet{
				BTH:  rocev2.BTH{Opcode: rocev2.Opcode(b[0]), DestQPN: rocev2.QPN(b[1] & 3), PSN: rocev2.PSN(b[2])<<16 | rocev2.PSN(b[3])<<8 | rocev2.PSN(b[4])},
				RETH: rocev2.RETH{Length: uint32(b[5]) << (b[6] & 31)}, AETH: rocev2.AETH{Syndrome: rocev2.Syndrome(b[5])},
				DETH: rocev2.DETH{SrcQPN: rocev2.QPN(b[5] & 3)},
			}
			info, ok := p.BTH.Opcode.Info()
			if !ok {
				continue
			}
			if info.Payload != rocev2.PayloadNone {
				p.Payload = make([]byte, []int{0, 1, 256, 1024}[b[7]&3])
			}
			c.packet(src, dst, p)
		}
		showAll(t, dissect.New(c, dissect.Limits{Connections: 3, Memory: 4096}))
	})
}

// FuzzManagement: no management datagram panics.
func FuzzManagement(f *testing.F) {
	for _, name := range []string{"rping", "udaddy"} {
		file, err := os.Open(golden + name + ".pcap")
		if err != nil {
			f.Fatal(err)
		}
		c, err := dissect.Open(file)
		if err != nil {
			f.Fatal(err)
		}
		for {
			p, err := c.Next()
			if err != nil {
				break
			}
			if p.Mgmt.Present {
				f.Add(bytes.Clone(p.Wire.Payload), false)
			}
		}
		file.Close()
	}
	f.Fuzz(func(t *testing.T, b []byte, back bool) {
		c := &traffic{}
		for i := range 3 {
			src, dst := hostA, hostB
			if back == (i == 1) {
				src, dst = dst, src
			}
			c.packet(src, dst, rocev2.Packet{
				BTH: rocev2.BTH{Opcode: rocev2.UDSendOnly, DestQPN: 1}, DETH: rocev2.DETH{SrcQPN: 1}, Payload: b[:min(len(b), 4096)],
			})
		}
		showAll(t, dissect.New(c, dissect.Limits{Connections: 2}))
	})
}

// FuzzFilter: what is a filter has a condition, and what is none an error with
// a place in the text.
func FuzzFilter(f *testing.F) {
	for _, text := range []string{"cm or nak", "!(qp=0x11,5-9) and rtt>=1ms", "host 10.0.0.0/8", "((("} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		filter, err := dissect.ParseFilter(text)
		if err != nil {
			if e := err.(*dissect.FilterError); e.Column < 1 || e.Column > len(text)+1 {
				t.Fatalf("column %d of %q", e.Column, text)
			}
			return
		}
		filter.Match(&dissect.Packet{})
	})
}
