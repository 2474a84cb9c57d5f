package conformance_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/observe/conformance"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// faulty is a device's link that alters what it sends and receives, as a faulty
// responder or requester would.
type faulty struct {
	transport.Wrapper
	tx func(*rocev2.Packet) bool // false loses the packet
	rx func(*transport.RxPacket)
}

func (f *faulty) Send(b *transport.TxBatch) error {
	if f.tx == nil {
		return f.Link.Send(b)
	}
	out := transport.NewTxBatch(1 << 20)
	for i := range b.Len() {
		data, path := b.Packet(i)
		var p rocev2.Packet
		if err := p.Parse(append(slices.Clone(data), 0, 0, 0, 0)); err != nil {
			return err
		}
		if f.tx(&p) {
			out.Commit(len(p.AppendTo(out.Room()[:0])), path)
		}
	}
	return f.Link.Send(out)
}

func (f *faulty) Recv(b *transport.RxBatch) (int, error) {
	n, err := f.Link.Recv(b)
	if f.rx != nil {
		for i := range b.Packets() {
			f.rx(&b.Packets()[i])
		}
	}
	return n, err
}

// is reports whether a packet has one of the opcodes.
func is(p *rocev2.Packet, ops ...rocev2.Opcode) bool { return slices.Contains(ops, p.BTH.Opcode) }

func isNAK(p *rocev2.Packet, s rocev2.Syndrome) bool {
	return is(p, rocev2.RCAcknowledge) && p.AETH.Syndrome == s
}

// planted are faults, and rules that must find them.
var planted = []struct {
	name  string
	tx    func(*rocev2.Packet) bool
	rx    func(*transport.RxPacket)
	rules []string
}{
	{"ICRC is not checked", nil, func(p *transport.RxPacket) { p.ICRC = transport.ICRCVerified }, []string{"wire/icrc", "requester/read-icrc"}},
	{"P_Key is not checked", nil, func(p *transport.RxPacket) { p.Data[2], p.Data[3] = 0xff, 0xff }, []string{"wire/pkey-wrong"}},
	{"version is not checked", nil, func(p *transport.RxPacket) { p.Data[1] &= 0xf0 }, []string{"wire/version"}},
	{"Q_Key is not checked", nil, func(p *transport.RxPacket) {
		if p.Data[0] == byte(rocev2.UDSendOnly) {
			copy(p.Data[rocev2.BTHLen:], []byte{1, 0x23, 0x45, 0x67})
		}
	}, []string{"ud/qkey"}},
	{"MSN counts packets", func(p *rocev2.Packet) bool {
		if is(p, rocev2.RCAcknowledge) {
			p.AETH.MSN++
		}
		return true
	}, nil, []string{"send/only", "ack/msn"}},
	{"acknowledgements have the PSN before", func(p *rocev2.Packet) bool {
		if is(p, rocev2.RCAcknowledge) && p.AETH.Syndrome.IsACK() {
			p.BTH.PSN = p.BTH.PSN.Add(-1)
		}
		return true
	}, nil, []string{"send/only", "ack/last"}},
	{"a wrong key is an operational error", func(p *rocev2.Packet) bool {
		if isNAK(p, rocev2.NAKRemoteAccess) {
			p.AETH.Syndrome = rocev2.NAKRemoteOperational
		}
		return true
	}, nil, []string{"key/unknown", "key/rights", "key/straddle"}},
	{"no NAK for a gap", func(p *rocev2.Packet) bool { return !isNAK(p, rocev2.NAKSequence) }, nil, []string{"psn/gap", "psn/far"}},
	{"RNR NAK without its timer", func(p *rocev2.Packet) bool {
		if is(p, rocev2.RCAcknowledge) && p.AETH.Syndrome.IsRNR() {
			p.AETH.Syndrome = rocev2.SyndromeRNR(0)
		}
		return true
	}, nil, []string{"send/rnr"}},
	{"READ responses of swapped bytes", func(p *rocev2.Packet) bool {
		if is(p, rocev2.RCReadResponseMiddle) {
			p.Payload[0] ^= 1
		}
		return true
	}, nil, []string{"read/multi", "duplicate/read"}},
	{"READ responses without MIDDLE", func(p *rocev2.Packet) bool { return !is(p, rocev2.RCReadResponseMiddle) }, nil, []string{"read/multi"}},
	{"responses ask for acknowledgements", func(p *rocev2.Packet) bool {
		p.BTH.AckReq = true
		return true
	}, nil, []string{"send/only", "read/only"}},
	{"a reserved bit is set", func(p *rocev2.Packet) bool {
		p.BTH.Reserved7 = 1
		return true
	}, nil, []string{"send/only", "requester/send"}},
	{"atomics return the new value", func(p *rocev2.Packet) bool {
		p.AtomicAck.Original++
		return true
	}, nil, []string{"atomic/fetch-add", "duplicate/atomic"}},
	{"requests ask for no acknowledgement", func(p *rocev2.Packet) bool {
		p.BTH.AckReq = false
		return true
	}, nil, []string{"requester/send", "requester/write"}},
	{"the length of a WRITE is that of its packet", func(p *rocev2.Packet) bool {
		p.RETH.Length = min(p.RETH.Length, 256)
		return true
	}, nil, []string{"requester/write", "requester/read"}},
	{"other bytes the second time", func() func(p *rocev2.Packet) bool {
		seen := map[rocev2.PSN]bool{}
		return func(p *rocev2.Packet) bool {
			if len(p.Payload) > 0 && seen[p.BTH.PSN] {
				p.Payload[0]++
			}
			seen[p.BTH.PSN] = true
			return true
		}
	}(), nil, []string{"retry/same"}},
	{"UC is acknowledged", func(p *rocev2.Packet) bool {
		if is(p, rocev2.UCSendLast) {
			p.BTH.AckReq = true
		}
		return true
	}, nil, []string{"uc/requester"}},
}

// TestPlantedFaults: what is wrong with a peer is found, by the rules that it
// breaks, and said with what came.
func TestPlantedFaults(t *testing.T) {
	t.Parallel()
	for _, f := range planted {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rules, err := conformance.Select(f.rules)
				if err != nil {
					t.Fatal(err)
				}
				r := against(t, conformance.Config{Rules: rules}, func(l transport.Link) transport.Link {
					return &faulty{Wrapper: transport.Wrapper{Link: l}, tx: f.tx, rx: f.rx}
				})
				for _, res := range r.Results {
					if res.Verdict != conformance.Fail || res.Expected == "" || res.Came == "" || len(res.Steps) == 0 {
						t.Errorf("the fault is not found: %s", res.Text())
					}
				}
			})
		})
	}
}
