//go:build linux

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/gopacket/pcapgo"

	"github.com/gosoftroce/rocev2/e2e/guest"
	"github.com/gosoftroce/rocev2/observe/dissect"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// capture is a running tcpdump on a port of the bridge.
type capture struct {
	file   string
	cmd    *exec.Cmd
	stderr said
	done   chan struct{} // stderr is read to its end
}

// said is what a program has said so far.
type said struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// startCapture returns when tcpdump captures.
func startCapture(ctx context.Context, h *guest.Host, dev, file string) (*capture, error) {
	c := &capture{file: file, done: make(chan struct{})}
	// Immediate mode: a frame is in the file once it is seen, none waits in
	// a ring when the capture stops. The length bounds a slot of the ring;
	// no RoCE frame is longer.
	c.cmd = h.Command(ctx, "tcpdump", "-i", dev, "-n", "-U", "-s", "8192", "-B", "32768", "--immediate-mode", "-Z", "root", "-w", file)
	stderr, err := c.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	r := bufio.NewReader(io.TeeReader(stderr, &c.stderr))
	for {
		line, err := r.ReadString('\n')
		if strings.Contains(line, "listening on") {
			break
		}
		if err != nil {
			_ = c.cmd.Wait()
			return nil, fmt.Errorf("tcpdump: %s", strings.TrimSpace(c.stderr.String()))
		}
	}
	go func() {
		defer close(c.done)
		_, _ = io.Copy(io.Discard, r)
	}()
	return c, nil
}

// seenLine is what tcpdump says on SIGUSR1.
var seenLine = regexp.MustCompile(`(\d+) packets? captured, (\d+) packets? received by filter, (\d+) packets? dropped`)

// The number of frames that tcpdump has not taken from the kernel, by the last
// of its answers; -1 if there is none.
func behind(answers string) int {
	all := seenLine.FindAllStringSubmatch(answers, -1)
	if len(all) == 0 {
		return -1
	}
	var n [3]int
	for i, v := range all[len(all)-1][1:] {
		n[i], _ = strconv.Atoi(v) // digits
	}
	return max(0, n[1]-n[0]-n[2])
}

// drain waits until tcpdump has written all that the kernel has for it: what is
// left when it is told to end is lost, and a busy machine leaves something.
func (c *capture) drain() {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 500 {
		already := len(c.stderr.String())
		if c.cmd.Process.Signal(syscall.SIGUSR1) != nil {
			return
		}
		<-tick.C
		if behind(c.stderr.String()[already:]) == 0 {
			return
		}
	}
}

// stop ends the capture and returns how many frames the kernel dropped for it.
func (c *capture) stop() (dropped int, err error) {
	c.drain()
	if err := c.cmd.Process.Signal(syscall.SIGINT); err != nil {
		return 0, err
	}
	<-c.done
	if err := c.cmd.Wait(); err != nil {
		return 0, fmt.Errorf("tcpdump: %w: %s", err, c.stderr.String())
	}
	return droppedFrames(c.stderr.String())
}

var droppedLine = regexp.MustCompile(`(?m)^(\d+) packets? dropped by kernel`)

// droppedFrames reads tcpdump's summary.
func droppedFrames(summary string) (int, error) {
	m := droppedLine.FindStringSubmatch(summary)
	if m == nil {
		return 0, fmt.Errorf("tcpdump: no summary in %q", summary)
	}
	return strconv.Atoi(m[1])
}

func TestFramesBehind(t *testing.T) {
	t.Parallel()
	for answers, want := range map[string]int{
		"": -1,
		"tcpdump: 1 packet captured, 3 packets received by filter, 0 packets dropped by kernel\n":                                                                     2,
		"tcpdump: 10 packets captured, 40 packets received by filter, 30 packets dropped by kernel\n":                                                                 0,
		"0 packets captured, 1 packet received by filter, 0 packets dropped by kernel\n1 packet captured, 1 packet received by filter, 0 packets dropped by kernel\n": 0,
	} {
		if got := behind(answers); got != want {
			t.Errorf("%q: %d, want %d", answers, got, want)
		}
	}
}

func TestDroppedFrames(t *testing.T) {
	t.Parallel()
	for summary, want := range map[string]int{
		"10 packets captured\n10 packets received by filter\n0 packets dropped by kernel\n": 0,
		"9 packets captured\n10 packets received by filter\n1 packet dropped by kernel\n":   1,
		"1 packet captured\n26 packets received by filter\n25 packets dropped by kernel\n":  25,
	} {
		if got, err := droppedFrames(summary); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", summary, got, err, want)
		}
	}
	if _, err := droppedFrames("tcpdump: killed"); err == nil {
		t.Error("no summary is no error")
	}
}

// traffic is what a capture holds of one sender's RoCE frames.
type traffic struct {
	frames  int
	payload int    // bytes of messages, retransmissions counted again
	atomics int    // atomic requests
	cast    int    // datagrams to a group, as the connection manager has them
	managed cmSent // messages of connection management, retransmissions not counted
	changed string // a PSN that was sent again as something else, "" = none

	opcodes map[request]rocev2.Opcode // as sent first
	told    map[cmMessage]bool
}

// cmSent counts messages of connection management.
type cmSent struct{ req, rep, rtu, dreq, sidrReq, sidrRep int }

// cmMessage tells a message of connection management from others, and is the
// same for its retransmissions.
type cmMessage struct {
	attr  mad.Attribute
	id    mad.CommID // of the sender; in SIDR_REP, of the requester
	trans uint64
}

func newTraffic() *traffic {
	return &traffic{opcodes: map[request]rocev2.Opcode{}, told: map[cmMessage]bool{}}
}

// covers reports whether at least that was sent.
func (t *traffic) covers(want traffic) bool {
	m, w := t.managed, want.managed
	return t.payload >= want.payload && t.atomics >= want.atomics && t.cast >= want.cast && m.req >= w.req && m.rep >= w.rep && m.rtu >= w.rtu &&
		m.dreq >= w.dreq && m.sidrReq >= w.sidrReq && m.sidrRep >= w.sidrRep
}

func (t *traffic) String() string {
	return fmt.Sprintf("%d frames with %d bytes, %d atomics, %d datagrams to a group, %+v", t.frames, t.payload, t.atomics, t.cast, t.managed)
}

// manage takes a management datagram.
func (t *traffic) manage(b []byte) error {
	h, m, err := mad.Parse(b)
	if err != nil {
		return err
	}
	key := cmMessage{attr: h.Attribute, trans: h.TransactionID}
	n := new(int)
	switch v := m.(type) {
	case *mad.REQ:
		key.id, n = v.LocalID, &t.managed.req
	case *mad.REP:
		key.id, n = v.LocalID, &t.managed.rep
	case *mad.RTU:
		key.id, n = v.LocalID, &t.managed.rtu
	case *mad.DREQ:
		key.id, n = v.LocalID, &t.managed.dreq
	case *mad.SIDRREQ:
		key.id, n = v.RequestID, &t.managed.sidrReq
	case *mad.SIDRREP:
		key.id, n = v.RequestID, &t.managed.sidrRep
	}
	if !t.told[key] {
		t.told[key] = true
		*n++
	}
	return nil
}

// request names a request packet of a sender within a capture that is too
// short for PSNs to wrap.
type request struct {
	qpn rocev2.QPN
	psn rocev2.PSN
}

// add counts a packet. What is sent again must be what was sent before (IBTA
// 9.7.3); only a READ request may be split anew.
func (t *traffic) add(frame int, p *rocev2.Packet) {
	t.frames++
	if p.BTH.DestQPN == gsiQPN {
		return
	}
	t.payload += len(p.Payload)
	info, _ := p.BTH.Opcode.Info()
	if info.Operation == rocev2.OpFetchAdd || info.Operation == rocev2.OpCompareSwap {
		t.atomics++
	}
	if info.Role != rocev2.RoleRequest || info.Operation == rocev2.OpReadRequest {
		return
	}
	r := request{p.BTH.DestQPN, p.BTH.PSN}
	first, again := t.opcodes[r]
	if !again {
		t.opcodes[r] = p.BTH.Opcode
	} else if first != p.BTH.Opcode && t.changed == "" {
		t.changed = fmt.Sprintf("frame %d to QPN %v has PSN %v as %v, which was %v before", frame, r.qpn, r.psn, p.BTH.Opcode, first)
	}
}

// checkCapture verifies every RoCE frame of a capture: it decodes, and all 32
// bits of its ICRC are right for the IPv4 Identification that it carries.
func checkCapture(file string) (map[netip.Addr]*traffic, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := pcapgo.NewReader(bufio.NewReaderSize(f, 1<<20))
	if err != nil {
		return nil, err
	}
	sum := map[netip.Addr]*traffic{}
	var p rocev2.Packet
	for n := 1; ; n++ {
		frame, _, err := r.ZeroCopyReadPacketData()
		if errors.Is(err, io.EOF) {
			return sum, nil
		}
		if err != nil {
			return nil, err
		}
		d, ok := roceDatagram(frame)
		if !ok {
			continue
		}
		if err := p.Parse(d.data); err != nil {
			return nil, fmt.Errorf("frame %d from %v: %w", n, d.src, err)
		}
		flow := rocev2.NewFlow(d.src, d.dst, d.srcPort, rocev2.UDPPort)
		if !flow.Verify(d.id, d.data) {
			return nil, fmt.Errorf("frame %d from %v: wrong ICRC (%v PSN %v, %d bytes, Identification %#04x)", n, d.src, p.BTH.Opcode, p.BTH.PSN, len(d.data), d.id)
		}
		t := sum[d.src]
		if t == nil {
			t = newTraffic()
			sum[d.src] = t
		}
		t.add(n, &p)
		if d.dst.IsMulticast() && p.BTH.DestQPN == rocev2.MulticastQPN && p.DETH.QKey == interop.CMQKey && p.Imm == uint32(p.DETH.SrcQPN) {
			t.cast++
		}
		if p.BTH.DestQPN == gsiQPN {
			if err := t.manage(p.Payload); err != nil {
				return nil, fmt.Errorf("frame %d from %v: %w", n, d.src, err)
			}
		}
	}
}

// datagram is a UDP datagram to the RoCE port.
type datagram struct {
	src, dst netip.Addr
	srcPort  uint16
	id       uint16 // IPv4 Identification
	data     []byte
}

// roceDatagram takes an Ethernet frame apart.
func roceDatagram(b []byte) (d datagram, ok bool) {
	if len(b) < 14 {
		return d, false
	}
	kind, b := binary.BigEndian.Uint16(b[12:]), b[14:]
	switch {
	case kind == 0x0800 && len(b) >= 20 && b[9] == 17:
		total := int(binary.BigEndian.Uint16(b[2:]))
		header := int(b[0]&15) * 4
		if total > len(b) || header > total {
			return d, false
		}
		d.id = binary.BigEndian.Uint16(b[4:])
		d.src, d.dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		b = b[header:total]
	case kind == 0x86dd && len(b) >= 40 && b[6] == 17:
		total := 40 + int(binary.BigEndian.Uint16(b[4:]))
		if total > len(b) {
			return d, false
		}
		d.src, d.dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		b = b[40:total]
	default:
		return d, false
	}
	if len(b) < 8 || binary.BigEndian.Uint16(b[2:]) != rocev2.UDPPort {
		return d, false
	}
	d.srcPort, d.data = binary.BigEndian.Uint16(b), b[8:]
	return d, true
}

// gsiQPN is the queue pair of the general services, which connection
// management has.
const gsiQPN = 1

// checkDissect asks our own dissector about the frames of a capture: it must
// see as many of each sender, and find nothing wrong in any.
func checkDissect(file string, sum map[netip.Addr]*traffic) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	c, err := dissect.Open(bufio.NewReader(f))
	if err != nil {
		return err
	}
	seen := map[netip.Addr]int{}
	for {
		p, err := c.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("dissect: %w", err)
		}
		if err := errors.Join(p.Err, p.Mgmt.Err); err != nil {
			return fmt.Errorf("dissect finds frame %d from %v malformed: %w", p.Number, p.IP.Src, err)
		}
		if p.ICRC != dissect.ICRCGood || p.Mgmt.Present != (p.Wire.BTH.DestQPN == gsiQPN) {
			return fmt.Errorf("dissect, frame %d from %v: ICRC %v, management %v", p.Number, p.IP.Src, p.ICRC, p.Mgmt.Present)
		}
		seen[p.IP.Src]++
	}
	for src, t := range sum {
		if seen[src] != t.frames {
			return fmt.Errorf("dissect saw %d frames from %v of %d", seen[src], src, t.frames)
		}
	}
	return nil
}

// checkDissector asks Wireshark's dissectors about the frames of one sender:
// all must be seen as InfiniBand transport and none as malformed. Errors of
// ICMP quote frames that came when a program had ended.
func checkDissector(ctx context.Context, file string, src netip.Addr, frames int) error {
	field := "ip.src"
	if src.Is6() {
		field = "ipv6.src"
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "tshark", "-n", "--disable-protocol", "rpcordma", "-r", file, "-Y", fmt.Sprintf("udp.dstport == %d && %s == %v && !icmp && !icmpv6", rocev2.UDPPort, field, src),
		"-T", "fields", "-e", "frame.number", "-e", "infiniband.bth.opcode", "-e", "_ws.malformed")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("tshark: %w: %s", err, stderr.String())
	}
	seen := 0
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(f) != 3 || f[1] == "" {
			return fmt.Errorf("tshark sees no InfiniBand transport in frame %s from %v", f[0], src)
		}
		if f[2] != "" {
			return fmt.Errorf("tshark finds frame %s from %v malformed (opcode %s): %s", f[0], src, f[1], f[2])
		}
		seen++
	}
	if seen != frames {
		return fmt.Errorf("tshark dissected %d frames from %v of %d", seen, src, frames)
	}
	return nil
}
