package dissect

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Stats counts the packets that it is given.
type Stats struct {
	Packets, Bytes uint64 // bytes from BTH to ICRC
	Good, Bad      uint64 // ICRCs
	Unknown        uint64 // ICRCs of packets that were cut
	Malformed      uint64
	Marked         uint64 // congestion experienced
	Offloaded      uint64 // packets that were captured before segmentation
	Sealed         SealedStats
	First, Last    time.Duration
	opcodes        [256]OpcodeStats
	first          bool
}

// OpcodeStats counts the packets with an opcode.
type OpcodeStats struct {
	Opcode                        rocev2.Opcode
	Packets, Bytes, Payload       uint64
	Retransmitted, BadICRC, Other uint64 // Other: malformed
}

// Add counts a packet.
func (s *Stats) Add(p *Packet) {
	if !s.first {
		s.first, s.First, s.Last = true, p.Offset, p.Offset
	}
	s.First, s.Last = min(s.First, p.Offset), max(s.Last, p.Offset)
	s.Packets++
	s.Bytes += uint64(p.Length)
	switch p.ICRC {
	case ICRCGood:
		s.Good++
	case ICRCBad:
		s.Bad++
	default:
		if p.Cut || !p.Sealed.Present {
			s.Unknown++
		}
	}
	s.Sealed.add(p)
	if p.Malformed() {
		s.Malformed++
	}
	if p.IP.ECN() == 3 {
		s.Marked++
	}
	if p.Segments > 0 {
		s.Offloaded++
	}
	if p.Conn != nil {
		p.Conn.counted = true
	}
	if !p.HasBTH {
		return
	}
	o := &s.opcodes[p.Wire.BTH.Opcode]
	o.Opcode = p.Wire.BTH.Opcode
	o.Packets++
	o.Bytes += uint64(p.Length)
	o.Payload += uint64(p.PayloadLen)
	if p.Flags&Retransmitted != 0 {
		o.Retransmitted++
	}
	if p.ICRC == ICRCBad {
		o.BadICRC++
	}
	if p.Err != nil {
		o.Other++
	}
}

// Opcodes returns what was counted of the opcodes that occurred.
func (s *Stats) Opcodes() (list []OpcodeStats) {
	for _, o := range s.opcodes {
		if o.Packets > 0 {
			list = append(list, o)
		}
	}
	return list
}

// Duration returns the time from the first packet to the last.
func (s *Stats) Duration() time.Duration { return s.Last - s.First }

// WriteStats writes what was counted as text: all in all, for each opcode, and
// for each connection of which a packet was counted. The counters of a
// connection are of all its packets.
func WriteStats(w io.Writer, s *Stats, f *Flows) error {
	fmt.Fprintf(w, "%d packets, %d bytes in %s", s.Packets, s.Bytes, Duration(s.Duration()))
	fmt.Fprintf(w, "; ICRC: %d good, %d bad, %d unknown", s.Good, s.Bad, s.Unknown)
	for _, c := range []struct {
		n    uint64
		text string
	}{
		{s.Malformed, "malformed"}, {s.Marked, "with congestion experienced"}, {s.Offloaded, "captured before segmentation"},
	} {
		if c.n > 0 {
			fmt.Fprintf(w, "; %d %s", c.n, c.text)
		}
	}
	s.Sealed.text(w)
	fmt.Fprint(w, "\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "opcode\tpackets\tbytes\tpayload\tretransmitted\tbad ICRC\tmalformed\t\n")
	for _, o := range s.Opcodes() {
		fmt.Fprintf(t, "%v\t%d\t%d\t%d\t%d\t%d\t%d\t\n", o.Opcode, o.Packets, o.Bytes, o.Payload, o.Retransmitted, o.BadICRC, o.Other)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return writeConnectionStats(w, s, f)
}

func writeConnectionStats(w io.Writer, s *Stats, f *Flows) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "conn\trequests of\tpackets\tpayload\tanswers\tpayload\tmessages\tcompleted\tagain\tduplicate\tmissing\tlate\tNAK\tRNR\terrors\trtt min\tmean\tmax\t\n")
	for _, c := range s.connections(f) {
		for i := range c.Requests {
			s := &c.Requests[i].Counters
			if s.Packets+s.Responses > 0 {
				writeSide(t, c.Name(), c.End(i).Addr.String(), s)
			}
		}
	}
	if o := f.Forgotten(); o.Connections > 0 {
		writeSide(t, "others", fmt.Sprintf("%d connections", o.Connections), &o.Counters)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return writeSealed(w, s.connections(f))
}

func writeSide(w io.Writer, name, from string, s *Counters) {
	fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d", name, from,
		s.Packets, s.Payload, s.Responses, s.ResponsePayload, s.Messages, s.Completed,
		s.Retransmitted+s.Repeated, s.Duplicates, s.Missing, s.OutOfOrder, s.NAKSequence, s.RNRs, s.NAKErrors)
	if s.RTTs == 0 {
		fmt.Fprint(w, "\t-\t-\t-\t\n")
		return
	}
	fmt.Fprintf(w, "\t%s\t%s\t%s\t\n", Duration(s.RTTMin), Duration(s.RTT()), Duration(s.RTTMax))
}

// connections returns the connections of which a packet was counted.
func (s *Stats) connections(f *Flows) []*Connection {
	return slices.DeleteFunc(f.Connections(), func(c *Connection) bool { return !c.counted })
}

// WriteConnections lists the connections of which s has counted packets, one in
// a line.
func WriteConnections(w io.Writer, s *Stats, f *Flows) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "conn\tservice\tfrom\tqp\tto\tqp\tmtu\tfirst\tlast\tpackets\tpayload\tstate\t\n")
	for _, c := range s.connections(f) {
		sum := c.Totals()
		fmt.Fprintf(t, "%s\t%v\t%v\t%s\t%v\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t\n", c.Name(), c.Service,
			c.A.Addr, qpnText(c.A), c.B.Addr, qpnText(c.B), orDash(c.MTU), Seconds(c.First), Seconds(c.Last),
			sum.Packets+sum.Responses+c.Management+c.CNPs+c.unopened(), sum.Payload+sum.ResponsePayload, stateText(c))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if o := f.Forgotten(); o.Connections > 0 {
		_, err := fmt.Fprintf(w, "%d more connections are not kept\n", o.Connections)
		return err
	}
	return nil
}

func qpnText(e Endpoint) string {
	if !e.Known {
		return "?"
	}
	return e.QPN.String()
}

func orDash(n int) string {
	if n == 0 {
		return "-"
	}
	return itoa(uint64(n))
}

func stateText(c *Connection) string {
	text := c.State.String()
	if c.Purpose != "" && c.State != StateUnmanaged {
		text += " " + c.Purpose
	}
	if c.wasSealed() {
		text = strings.TrimPrefix(text+", sealed", ", ")
	}
	return cmp.Or(text, "-")
}
