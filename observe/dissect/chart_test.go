package dissect_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/observe/dissect"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

var updateText = flag.Bool("update-text", false, "write testdata/*.txt anew")

// scenario is a connection with everything that can go wrong.
func scenario() *traffic {
	c := &traffic{}
	c.mad(hostA, hostB, request(7))
	c.mad(hostB, hostA, &mad.REP{LocalID: 8, RemoteID: 7, LocalQPN: qpB, StartingPSN: 100})
	c.mad(hostA, hostB, &mad.RTU{LocalID: 7, RemoteID: 8, Private: []byte("hi")})
	c.packet(hostA, hostB, rocev2.Packet{
		BTH: rocev2.BTH{Opcode: rocev2.RCWriteFirst, DestQPN: qpB, PSN: 100}, RETH: rocev2.RETH{VA: 0x1000, RKey: 7, Length: 6154}, Payload: make([]byte, 1024),
	})
	for psn := rocev2.PSN(101); psn < 105; psn++ {
		c.request(rocev2.RCWriteMiddle, psn, 1024)
	}
	c.request(rocev2.RCWriteLastImm, 106, 10)
	c.response(rocev2.RCAcknowledge, 105, rocev2.NAKSequence, 0)
	c.request(rocev2.RCWriteMiddle, 105, 1024)
	c.request(rocev2.RCWriteLastImm, 106, 10)
	c.response(rocev2.RCAcknowledge, 106, rocev2.SyndromeRNR(14), 0)
	c.wait(time.Millisecond)
	c.request(rocev2.RCWriteLastImm, 106, 10)
	c.ack(106)
	c.read(107, 1500)
	c.response(rocev2.RCReadResponseFirst, 107, rocev2.ACKNoCredits, 1024)
	c.response(rocev2.RCReadResponseLast, 108, rocev2.ACKNoCredits, 476)
	c.packet(hostA, hostB, rocev2.Packet{
		BTH:       rocev2.BTH{Opcode: rocev2.RCFetchAdd, DestQPN: qpB, PSN: 109},
		AtomicETH: rocev2.AtomicETH{VA: 0x1000, RKey: 7, SwapAdd: 3},
	})
	c.packet(hostB, hostA, rocev2.Packet{
		BTH: rocev2.BTH{Opcode: rocev2.RCAtomicAcknowledge, DestQPN: qpA, PSN: 109}, AETH: rocev2.AETH{Syndrome: 0x1f}, AtomicAck: rocev2.AtomicAckETH{Original: 39},
	})
	c.packet(hostB, hostA, rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.CNP, DestQPN: qpA, BECN: true}})
	c.request(rocev2.RCSendOnly, 110, 4)
	c.frames[len(c.frames)-1].Data[42] ^= 1
	c.request(rocev2.RCWriteOnly, 110, 4)
	c.response(rocev2.RCAcknowledge, 110, rocev2.NAKRemoteAccess, 0)
	c.mad(hostA, hostB, &mad.DREQ{LocalID: 7, RemoteID: 8, RemoteQPN: qpB})
	c.mad(hostB, hostA, &mad.DREP{LocalID: 8, RemoteID: 7})
	return c
}

// show has a capture shown in one of the ways.
func show(t *testing.T, way string) string {
	t.Helper()
	var b bytes.Buffer
	var stats dissect.Stats
	chart := dissect.NewChart(0, 0)
	c := dissect.New(scenario(), dissect.Limits{})
	for {
		p, err := c.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		stats.Add(p)
		chart.Add(p)
		switch way {
		case "lines":
			b.WriteString(dissect.Line(p) + "\n")
		case "details":
			err = dissect.Detail(&b, p, p.PayloadLen < 100)
		case "json":
			b.Write(append(dissect.JSON(nil, p), '\n'))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	switch way {
	case "stats":
		err = dissect.WriteStats(&b, &stats, c.Flows())
	case "stats-json":
		err = dissect.WriteStatsJSON(&b, &stats, c.Flows())
	case "connections":
		err = dissect.WriteConnections(&b, &stats, c.Flows())
	case "chart":
		err = chart.WriteText(&b, 90)
	case "svg":
		err = chart.WriteSVG(&b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// What users see of one connection is in testdata: read it after you change it.
// Write it anew with -update-text.
func TestShown(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"lines", "details", "json", "stats", "stats-json", "connections", "chart", "svg"} {
		got := show(t, way)
		file := filepath.Join("testdata", way+".txt")
		if *updateText {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s is\n%s\nwant\n%s", way, got, want)
		}
	}
}

// Every line of the chart is as wide as was asked for.
func TestChartColumns(t *testing.T) {
	t.Parallel()
	for _, line := range strings.Split(strings.TrimSpace(show(t, "chart")), "\n")[2:] {
		if n := len([]rune(strings.TrimLeft(line, "\n"))); n != 90 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestSVGIsXML(t *testing.T) {
	t.Parallel()
	d := xml.NewDecoder(strings.NewReader(show(t, "svg")))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestJSONIsValid(t *testing.T) {
	t.Parallel()
	for _, line := range strings.Split(strings.TrimSpace(show(t, "json")), "\n") {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil || v["rocev2.icrc"] == "" {
			t.Errorf("%v: %s", err, line)
		}
	}
}

// A chart has an end, and says what is not in it.
func TestChartLimit(t *testing.T) {
	t.Parallel()
	c := &traffic{}
	for i := range 30 {
		c.request(rocev2.RCSendOnly, rocev2.PSN(i), 4)
	}
	c.packet(hostB, hostA, rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendOnly, DestQPN: 99}})
	capture := dissect.New(c, dissect.Limits{})
	chart := dissect.NewChart(0, 10)
	for {
		p, err := capture.Next()
		if err != nil {
			break
		}
		chart.Add(p)
	}
	var b bytes.Buffer
	if err := chart.WriteText(&b, 10); err != nil {
		t.Fatal(err)
	}
	if chart.More() != 20 || len(chart.Others()) != 1 || strings.Count(b.String(), "SEND_ONLY") != 10 || !strings.Contains(b.String(), "20 more packets") {
		t.Errorf("%d more, others %v:\n%s", chart.More(), chart.Others(), b.String())
	}
}
