package conformance_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/observe/conformance"
	"github.com/gosoftroce/rocev2/observe/conformance/rules"
	"github.com/gosoftroce/rocev2/observe/conformance/target"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// plant is what is wrong with a peer. It alters what the device of the peer
// sends and receives, and what its target says of memory and completions.
type plant struct {
	raw  func(*transport.RxPacket)             // what comes, as it is
	rx   func(*rocev2.Packet) bool             // a packet that comes; false loses it
	tx   func(*rocev2.Packet) bool             // a packet that is sent; false loses it
	more func(*rocev2.Packet) []*rocev2.Packet // what is sent after a packet
	late func(*rocev2.Packet) time.Duration    // after which a packet is sent again; 0 is never
	says func(command, answer string) string   // what the target answers
}

// fault is one that a peer may have, and the rules that must find it.
type fault struct {
	name  string
	plant func() plant // anew for each run: it may have a state
	rules string       // patterns, separated by blanks
}

// faulty is the link of a device with a fault.
type faulty struct {
	transport.Wrapper
	plant
}

func (f *faulty) Send(b *transport.TxBatch) error {
	out := transport.NewTxBatch(1 << 20)
	for i := range b.Len() {
		data, path := b.Packet(i)
		var p rocev2.Packet
		if err := p.Parse(append(slices.Clone(data), 0, 0, 0, 0)); err != nil {
			return err
		}
		all := []*rocev2.Packet{&p}
		if f.more != nil {
			all = append(all, f.more(&p)...)
		}
		if f.tx != nil && !f.tx(&p) {
			all = all[1:]
		}
		for _, p := range all {
			out.Commit(len(p.AppendTo(out.Room()[:0])), path)
		}
		if f.late != nil {
			f.sendLater(f.late(&p), &p, path)
		}
	}
	return f.Link.Send(out)
}

func (f *faulty) sendLater(after time.Duration, p *rocev2.Packet, path *transport.Path) {
	if after == 0 {
		return
	}
	b := transport.NewTxBatch(1)
	b.Commit(len(p.AppendTo(b.Room()[:0])), path)
	time.AfterFunc(after, func() { _ = f.Link.Send(b) }) // a link that is closed has no peer
}

func (f *faulty) Recv(b *transport.RxBatch) (int, error) {
	n, err := f.Link.Recv(b)
	for i := range b.Packets() {
		f.receive(&b.Packets()[i])
	}
	return n, err
}

func (f *faulty) receive(r *transport.RxPacket) {
	if f.raw != nil {
		f.raw(r)
	}
	var p rocev2.Packet
	if f.rx == nil || r.ICRC == transport.ICRCBad || p.Parse(r.Data) != nil {
		return
	}
	if !f.rx(&p) {
		r.ICRC = transport.ICRCBad
		return
	}
	r.Data = append(p.AppendTo(nil), 0, 0, 0, 0)
}

// dial opens control connections to a target whose answers are altered.
func (f *faulty) dial(ctx context.Context, dev *verbs.Device) net.Conn {
	here, asked := net.Pipe()
	asks, there := net.Pipe()
	go target.ServeConn(ctx, dev, there, target.Config{})
	go func() {
		defer asks.Close()
		defer asked.Close()
		in, answers := bufio.NewScanner(asked), bufio.NewScanner(asks)
		answers.Buffer(nil, 1<<16)
		for in.Scan() {
			if _, err := fmt.Fprintln(asks, in.Text()); err != nil || !answers.Scan() {
				return
			}
			text := answers.Text()
			if f.says != nil {
				text = f.says(in.Text(), text)
			}
			if _, err := fmt.Fprintln(asked, text); err != nil {
				return
			}
		}
	}()
	return here
}

// run tests rules against a device with the fault.
func (f *fault) run(t *testing.T, list []conformance.Rule) *conformance.Report {
	return f.runWith(t, conformance.Config{Rules: list})
}

func (f *fault) runWith(t *testing.T, c conformance.Config) *conformance.Report {
	bad := &faulty{plant: f.plant()}
	var dev *verbs.Device
	c.Dial = func(context.Context) (net.Conn, error) { return bad.dial(t.Context(), dev), nil }
	return against(t, c, func(l transport.Link) transport.Link {
		bad.Wrapper = transport.Wrapper{Link: l}
		return bad
	}, &dev)
}

// TestPlantedFaults: what is wrong with a peer is found, by the rules that it
// breaks, and said with what came.
func TestPlantedFaults(t *testing.T) {
	t.Parallel()
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				list, err := conformance.Select(strings.Fields(f.rules))
				if err != nil {
					t.Fatal(err)
				}
				for _, res := range f.run(t, list).Results {
					if res.Verdict != conformance.Fail || res.Expected == "" || res.Came == "" || len(res.Steps) == 0 {
						t.Errorf("the fault is not found: %s%s", res.Text(), strings.Join(res.Steps, "\n"))
					}
				}
			})
		})
	}
}

// TestEveryRuleCanFail: there is a fault for each rule which makes it fail. So
// none passes whatever the peer does.
func TestEveryRuleCanFail(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, f := range faults() {
		list, err := conformance.Select(strings.Fields(f.rules))
		if err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
		for _, r := range list {
			found[r.ID] = true
		}
	}
	for _, r := range rules.All() {
		if !found[r.ID] {
			t.Errorf("no fault is planted that rule %s finds", r.ID)
		}
	}
}

func faults() []fault {
	return slices.Concat(formFaults, responderFaults, duplicateFaults, memoryFaults, requesterFaults, unreliableFaults)
}

// loses is a fault that loses what comes.
func loses(match func(*rocev2.Packet) bool) func() plant {
	return func() plant { return plant{rx: func(p *rocev2.Packet) bool { return !match(p) }} }
}

// sends is a fault that alters what is sent, or loses it.
func sends(change func(*rocev2.Packet) bool) func() plant {
	return func() plant { return plant{tx: change} }
}

// takes is a fault that takes some packets for others.
func takes(match func(*rocev2.Packet) bool, change func(*rocev2.Packet)) func() plant {
	return func() plant {
		return plant{rx: func(p *rocev2.Packet) bool {
			if match(p) {
				change(p)
			}
			return true
		}}
	}
}

// says is a fault of what programs at the peer see.
func says(command string, change func(command, answer string) string) func() plant {
	return func() plant {
		return plant{says: func(c, answer string) string {
			if name, _, _ := strings.Cut(c, " "); name != command {
				return answer
			}
			return change(c, answer)
		}}
	}
}

// answers is a fault that alters the answer to some requests: the first packet
// that is sent with their PSN.
func answers(match func(*rocev2.Packet) bool, change func(*rocev2.Packet) bool) func() plant {
	return func() plant {
		asked := map[rocev2.PSN]bool{}
		return plant{
			rx: func(p *rocev2.Packet) bool {
				asked[p.BTH.PSN] = match(p)
				return true
			},
			tx: func(p *rocev2.Packet) bool {
				if !asked[p.BTH.PSN] {
					return true
				}
				delete(asked, p.BTH.PSN)
				return change(p)
			},
		}
	}
}

// nak makes a packet a negative acknowledgement.
func nak(s rocev2.Syndrome) func(*rocev2.Packet) bool {
	return func(p *rocev2.Packet) bool {
		p.BTH.Opcode, p.AETH.Syndrome, p.Payload = rocev2.RCAcknowledge, s, nil
		return true
	}
}

// lost loses a packet.
func lost(*rocev2.Packet) bool { return false }

// is reports whether a packet has one of the opcodes.
func is(p *rocev2.Packet, ops ...rocev2.Opcode) bool { return slices.Contains(ops, p.BTH.Opcode) }

// op matches packets that have one of the opcodes.
func op(ops ...rocev2.Opcode) func(*rocev2.Packet) bool {
	return func(p *rocev2.Packet) bool { return is(p, ops...) }
}

// anyRequest matches requests of RC.
func anyRequest(p *rocev2.Packet) bool {
	info, _ := p.BTH.Opcode.Info()
	return info.Service == rocev2.ServiceRC && info.Role == rocev2.RoleRequest
}

func isNAK(p *rocev2.Packet, s rocev2.Syndrome) bool {
	return is(p, rocev2.RCAcknowledge) && p.AETH.Syndrome == s
}

func isACK(p *rocev2.Packet) bool { return is(p, rocev2.RCAcknowledge) && p.AETH.Syndrome.IsACK() }

func isRNR(p *rocev2.Packet) bool { return is(p, rocev2.RCAcknowledge) && p.AETH.Syndrome.IsRNR() }

// flip alters a byte of a payload.
func flip(p *rocev2.Packet) { p.Payload = append([]byte{p.Payload[0] ^ 1}, p.Payload[1:]...) }

// parameter returns the number that a command or an answer has under a name.
func parameter(line, name string) uint64 {
	for _, w := range strings.Fields(line) {
		if text, ok := strings.CutPrefix(w, name+"="); ok {
			n, _ := strconv.ParseUint(text, 0, 64) // the target has read it, too
			return n
		}
	}
	return 0
}
