package qp

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// final returns what PollFinal writes.
func (e *testEnd) final(t *testing.T) (out []string) {
	t.Helper()
	buf := make([]byte, 64)
	for n := e.halves.PollFinal(buf); n > 0; n = e.halves.PollFinal(buf) {
		var p rocev2.Packet
		if err := p.Parse(buf[:n+rocev2.ICRCLen]); err != nil {
			t.Fatal(err)
		}
		kind := "NAK "
		if p.AETH.Syndrome.IsACK() {
			kind = "ACK "
		}
		out = append(out, fmt.Sprint(kind, p.BTH.PSN))
	}
	return out
}

// A queue pair that goes acknowledges what it has executed, asked or not, but
// nothing after a READ or an atomic whose answer is not on its way (IBTA
// 9.7.5.1).
func TestFinalAcknowledgement(t *testing.T) {
	t.Parallel()
	const first = 100
	for _, c := range []struct {
		posts    string // Send, Read of two packets, Atomic, Long SEND of two packets, Bad WRITE
		carried  int    // packets of a that arrive; 0 is all
		answered int    // packets that b sends before
		want     []string
	}{
		{"", 0, 0, nil},
		{"S", 0, 0, []string{"ACK 100"}},
		{"S", 0, 1, nil},
		{"SS", 0, 0, []string{"ACK 101"}},
		{"L", 1, 0, []string{"ACK 100"}},
		{"SRS", 0, 0, []string{"ACK 100"}},
		{"RS", 0, 0, nil},
		{"RS", 0, 1, nil},
		{"RS", 0, 2, []string{"ACK 102"}},
		{"SAS", 0, 0, []string{"ACK 100"}},
		{"SAS", 0, 2, []string{"ACK 102"}},
		{"AR", 0, 0, nil},
		{"SRSA", 0, 3, []string{"ACK 103"}},
		{"SB", 0, 0, []string{"ACK 100", "NAK 101"}},
		{"SB", 0, 2, nil},
	} {
		p := newPair(t, pairConfig{attr: ib.Attr{SQPSN: first, RQPSN: first}})
		for range 4 {
			must(t, p.b.PostRecv(&ib.RecvWR{SGList: p.b.sge(0, 4096)}))
		}
		for _, op := range c.posts {
			wr := ib.SendWR{Opcode: ib.OpSend, SGList: p.a.sge(0, 8), Remote: p.b.remote(0), Signaled: true}
			switch op {
			case 'R':
				wr.Opcode, wr.SGList = ib.OpRead, p.a.sge(0, 2000)
			case 'A':
				wr.Opcode = ib.OpFetchAdd
			case 'L':
				wr.SGList = p.a.sge(0, 2000)
			case 'B':
				wr.Opcode, wr.Remote.RKey = ib.OpWrite, wr.Remote.RKey+1
			}
			must(t, p.a.PostSend(&wr))
		}
		carried := 100
		if c.carried > 0 {
			carried = c.carried
		}
		p.transfer(p.a, carried)
		p.transfer(p.b, c.answered)
		if got := p.b.final(t); !slices.Equal(got, c.want) {
			t.Errorf("%s, %d answered: %q, want %q", c.posts, c.answered, got, c.want)
		}
		if got := p.b.final(t); got != nil {
			t.Errorf("%s, %d answered: and then %q", c.posts, c.answered, got)
		}
	}
}

// An error on this side ends the connection, and what was received before is
// acknowledged all the same.
func TestLocalErrorAcknowledges(t *testing.T) {
	t.Parallel()
	for _, end := range []func(p *pair){
		func(p *pair) {
			must(t, p.b.PostSend(&ib.SendWR{Opcode: ib.OpSend, SGList: []ib.SGE{{Addr: 1, Length: 8, LKey: 1}}}))
		},
		func(p *pair) { must(t, p.b.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState)) },
	} {
		p := newPair(t, pairConfig{})
		must(t, p.b.PostRecv(&ib.RecvWR{SGList: p.b.sge(0, 8)}))
		must(t, p.a.PostSend(&ib.SendWR{ID: 1, Opcode: ib.OpSend, SGList: p.a.sge(0, 8), Signaled: true}))
		p.b.delay = true
		p.transfer(p.a, 1)
		end(p)
		p.transfer(p.b, 1)
		p.b.delay = false
		p.run()
		if p.b.State() != ib.StateErr {
			t.Fatalf("state %v", p.b.State())
		}
		if got := p.a.sq.statuses(); got != "1 SUCCESS" {
			t.Errorf("the peer's completion: %q", got)
		}
		if n, _ := p.b.InFlight(); n != 0 {
			t.Errorf("%d bytes in flight in ERR", n)
		}
	}
}
