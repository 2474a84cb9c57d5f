package dissect_test

import (
	"bytes"
	"context"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/observe/dissect"
	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/rdma/rdmanet"
	"github.com/gosoftroce/rocev2/rdma/rdmanet/rsocket"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/transport/fault"
	"github.com/gosoftroce/rocev2/transport/tap"
	"github.com/gosoftroce/rocev2/verbs"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// recorded is two devices, of which the packets of the first are recorded.
type recorded struct {
	t      *testing.T
	a, b   *verbs.Device
	faults *fault.Link
	tap    *tap.Link
	file   string
}

func record(t *testing.T) *recorded {
	t.Helper()
	r := &recorded{t: t, file: filepath.Join(t.TempDir(), "capture.pcapng")}
	f, err := os.Create(r.file)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	sw := fabric.NewSwitch(fabric.Config{})
	pa, err := sw.Attach(hostA)
	must(t, err)
	pb, err := sw.Attach(hostB)
	must(t, err)
	r.faults = fault.New(pa, 1)
	r.tap, err = tap.New(r.faults, f)
	must(t, err)
	r.a, err = verbs.OpenLink(r.tap, verbs.Config{})
	must(t, err)
	r.b, err = verbs.OpenLink(pb, verbs.Config{})
	must(t, err)
	t.Cleanup(func() { r.a.Close(); r.b.Close() })
	return r
}

// close ends the capture and returns its packets.
func (r *recorded) close() []seen {
	r.t.Helper()
	must(r.t, r.a.Close())
	b, err := os.ReadFile(r.file)
	must(r.t, err)
	c, err := dissect.Open(bytes.NewReader(b))
	must(r.t, err)
	return packets(r.t, c)
}

// messages records a connection of package rdma: the directory, messages, one
// of several packets, and the end. While packets are lost, WRITEs go on until
// the peer has sent a selective acknowledgement.
func messages(t *testing.T) *recorded {
	t.Helper()
	r := record(t)
	ctx := t.Context()
	lc := rdma.ListenConfig{Device: r.b, MessageSize: 1 << 16}
	lc.Export("table", rdma.Region{Memory: make([]byte, 1<<20), Writable: true})
	l, err := lc.Listen(ctx, netip.AddrPortFrom(hostB, 0).String())
	must(t, err)
	defer l.Close()
	done := make(chan error, 1)
	go func() { done <- echo(ctx, l) }()
	d := rdma.Dialer{Device: r.a, MessageSize: 1 << 16}
	c, err := d.Dial(ctx, l.Addr().String())
	must(t, err)
	list, err := c.Regions(ctx)
	must(t, err)
	if len(list) != 1 {
		t.Fatalf("%d regions", len(list))
	}
	region, err := c.Region(ctx, "table")
	must(t, err)
	buf := make([]byte, 1<<16)
	for _, n := range []int{5, 20000} {
		must(t, c.Send(ctx, buf[:n]))
		_, err := c.Recv(ctx, buf)
		must(t, err)
	}
	rule, err := fault.ParseRule("drop=10%:dir=out")
	must(t, err)
	r.faults.SetRules(rule)
	for range 20 {
		must(t, region.Write(ctx, buf, 0))
	}
	r.faults.SetRules()
	s := c.Stream()
	must(t, s.CloseWrite())
	_, err = io.ReadAll(s)
	must(t, err)
	must(t, c.Close())
	must(t, <-done)
	return r
}

// echo sends the messages of one connection back, to the end of its stream.
func echo(ctx context.Context, l *rdma.Listener) error {
	c, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	buf := make([]byte, 1<<16)
	for range 2 {
		n, err := c.Recv(ctx, buf)
		if err == nil {
			err = c.Send(ctx, buf[:n])
		}
		if err != nil {
			return err
		}
	}
	s := c.Stream()
	if _, err := io.ReadAll(s); err != nil {
		return err
	}
	return s.CloseWrite()
}

// streams records a connection of package rdmanet, on which more is sent than
// the ring holds.
func streams(t *testing.T) *recorded {
	t.Helper()
	r := record(t)
	lc := rdmanet.ListenConfig{Device: r.b, Options: rdmanet.Options{RecvBuffer: 8 << 10}}
	l, err := lc.Listen(t.Context(), "rdma", netip.AddrPortFrom(hostB, 0).String())
	must(t, err)
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = io.Copy(io.Discard, c)
			c.Close()
		}
		done <- err
	}()
	d := rdmanet.Dialer{Device: r.a}
	c, err := d.DialContext(t.Context(), "rdma", l.Addr().String())
	must(t, err)
	_, err = c.Write(make([]byte, 50000))
	must(t, err)
	must(t, c.Close())
	must(t, <-done)
	return r
}

// text is what a field of a packet says; "" if the packet has it not.
func (s *seen) text(name string) string {
	for _, f := range s.fields {
		if f.Name == name {
			return normal(f.Value)
		}
	}
	return ""
}

// values returns what a field says in a capture, each value once.
func values(all []seen, name string) (list []string) {
	for i := range all {
		if v := all[i].text(name); v != "" && !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

// What programs of package rdma say to each other is shown.
func TestMessagesAreShown(t *testing.T) {
	t.Parallel()
	all := messages(t).close()
	for name, want := range map[string][]string{
		"rocev2.protocol":               {"rdma"},
		"rocev2.rdma.hello.regions":     {"0", "1"},
		"rocev2.rdma.hello.size":        {"65536"},
		"rocev2.rdma.kind":              {"request", "reply", "message", "end"},
		"rocev2.rdma.directory.op":      {"list", "lookup"},
		"rocev2.rdma.directory.status":  {"found"},
		"rocev2.rdma.directory.regions": {"1"},
		"rocev2.rdma.directory.name":    {"table"},
		"rocev2.rdma.malformed":         nil,
	} {
		got := values(all, name)
		for _, v := range want {
			if !slices.Contains(got, v) {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		if want == nil && got != nil {
			t.Errorf("%s is %q", name, got)
		}
	}
	if len(values(all, "rocev2.sack.arrived")) == 0 || len(values(all, "rocev2.sack.room")) == 0 {
		t.Error("there is no selective acknowledgement")
	}
	if !slices.ContainsFunc(all, func(s seen) bool { return strings.Contains(s.line, `rdma request, lookup "table"`) }) {
		t.Error("no line shows the request")
	}
}

// What is said on a connection of rsockets is shown.
func TestStreamsAreShown(t *testing.T) {
	t.Parallel()
	all := streams(t).close()
	sum := 0
	for i := range all {
		if all[i].text("rocev2.rsockets.op") == "DATA" && all[i].Flags&dissect.Retransmitted == 0 {
			sum += int(number(all[i], "rocev2.rsockets.value"))
		}
	}
	if sum != 50000 {
		t.Errorf("the stream has %d bytes", sum)
	}
	if got := values(all, "rocev2.rsockets.op"); !slices.Contains(got, "SGL") || !slices.Contains(got, "CTRL") {
		t.Errorf("messages: %q", got)
	}
	if got := values(all, "rocev2.rsockets.target.length"); !slices.Contains(got, "4096") {
		t.Errorf("targets of %q bytes", got)
	}
	if got := values(all, "rocev2.rsockets.control"); len(got) == 0 {
		t.Error("no end is shown")
	}
}

func number(s seen, name string) uint64 {
	for _, f := range s.fields {
		if n, ok := f.Value.(uint64); ok && f.Name == name {
			return n
		}
	}
	return 0
}

// greeted is a connection whose REQ and REP have private data.
func greeted(req, rep []byte) *traffic {
	c := &traffic{}
	r := request(7)
	r.Private = append(slices.Clone(r.Private), req...)
	c.mad(hostA, hostB, r)
	c.mad(hostB, hostA, &mad.REP{LocalID: 8, RemoteID: 7, LocalQPN: qpB, StartingPSN: 100, Private: rep})
	return c
}

// A protocol is one that both sides speak; what breaks it is shown as broken.
func TestApplicationsAreAgreed(t *testing.T) {
	t.Parallel()
	hello := append([]byte("RMSG\x01\x00\x00\x08\x00\x01\x00\x00"), 0, 0, 0, 0)
	block := (&rsocket.Block{BigEndian: true, Credits: 4, Slots: rsocket.Memory{Length: 2}, Ring: rsocket.Memory{Length: 8}}).AppendTo(nil)
	for _, c := range []struct {
		req, rep []byte
		op       rocev2.Opcode
		imm      uint32
		payload  string
		want     string
	}{
		{hello, hello, rocev2.RCSendOnlyImm, 1<<28 | 3, "\x00\x02ab\x00\x01c", "rdma packed, 2 messages, 3 credits back"},
		{hello, hello, rocev2.RCSendOnlyImm, 1 << 28, "\x00\x02ab\x00\x09c", "rdma packed, 1 messages (a message is cut off)"},
		{hello, hello, rocev2.RCSendOnlyImm, 3 << 28, "\x01", "rdma request (a request has 4 to 259 bytes)"},
		{hello, hello, rocev2.RCSendOnlyImm, 4 << 28, "\x02\x00\x00\x01\xff\xff\x00\x00", "rdma reply, found, 65535 regions (a region is cut off)"},
		{hello, hello, rocev2.RCSendOnlyImm, 9 << 28, "", "rdma reserved 9"},
		{hello, nil, rocev2.RCSendOnlyImm, 0, "x", ""},
		{hello, block, rocev2.RCSendOnlyImm, 0, "x", ""},
		{nil, hello, rocev2.RCSendOnlyImm, 0, "x", ""},
		{block, block, rocev2.RCWriteOnlyImm, 4<<29 | 7, "\x00\x00\x00\x00\x00\x00\x12\x34\x00\x00\x00\x05\x00\x00\x10\x00", "rsockets SGL credit 7 target 4 KiB at 0x1234"},
		{block, block, rocev2.RCWriteOnlyImm, 7<<29 | 2, "", "rsockets CTRL shutdown"},
		{block, block, rocev2.RCSendOnlyImm, 0, "x", ""},
	} {
		tr := greeted(c.req, c.rep)
		tr.packet(hostA, hostB, rocev2.Packet{BTH: rocev2.BTH{Opcode: c.op, DestQPN: qpB, PSN: 100}, Imm: c.imm, Payload: []byte(c.payload)})
		all, _ := tr.run(t)
		if got := all[len(all)-1].App.Text; got != c.want {
			t.Errorf("%x %q: %q, want %q", c.imm, c.payload, got, c.want)
		}
	}
}

// A selective acknowledgement names the packets that have arrived.
func TestSelectiveAcknowledgementIsShown(t *testing.T) {
	t.Parallel()
	tr := &traffic{}
	tr.packet(hostB, hostA, rocev2.Packet{
		BTH:  rocev2.BTH{Opcode: rocev2.SelectiveAck, DestQPN: qpA, PSN: 0xfffffe, Solicited: true},
		AETH: rocev2.AETH{Syndrome: rocev2.Syndrome(rocev2.CreditCode(100))}, Payload: []byte{0b1011, 0x80, 0x01, 0},
	})
	all, _ := tr.run(t)
	if got := all[0].text("rocev2.sack.arrived"); got != "16777215-0,2,14-15" {
		t.Errorf("%q: %s", got, all[0].line)
	}
}
