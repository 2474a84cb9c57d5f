package network

import (
	"fmt"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/internal/race"
)

// chain is two hosts with switches in a row between them. Cable i has rate
// rates[i]; there is one more than there are switches.
func chain(sw Switch, delay Time, rates ...int64) Config {
	c := Config{Hosts: 2}
	switches := len(rates) - 1
	nodes := []int{0}
	for s := range switches {
		nodes = append(nodes, 2+s)
		c.Switches = append(c.Switches, sw)
		// Port 0 leads to host 0, port 1 to host 1.
		c.Tables = append(c.Tables, Table{Set: []uint16{0, 1}, Sets: [][]uint16{{0}, {1}}})
	}
	nodes = append(nodes, 1)
	for i, rate := range rates {
		c.Cables = append(c.Cables, Cable{A: nodes[i], B: nodes[i+1], Rate: rate, Delay: delay})
	}
	return c
}

// message is the packets of a message: as many of the path MTU as fit, and the
// rest. Each has 58 bytes of headers and ICRC.
func message(bytes, pmtu int) (packets []Packet) {
	for bytes > 0 {
		b := min(bytes, pmtu)
		packets = append(packets, Packet{Dst: 1, Size: uint16(WireSize(b + 58))})
		bytes -= b
	}
	return packets
}

// unloaded is when the last bit of a message arrives over equal cables: they
// have the time of all packets once, and each its delay. A switch adds the time
// of a packet, or of 72 bytes when it cuts through.
func unloaded(packets []Packet, cutThrough bool, delay Time, cables, rate int64) float64 {
	each, total := int64(packets[0].Size), int64(0)
	for _, p := range packets {
		total += int64(p.Size)
	}
	if cutThrough {
		each = headWire
	}
	return float64(total+(cables-1)*each)*8e12/float64(rate) + float64(cables*int64(delay))
}

// pipeline is the same for cables of any rates: a packet begins to leave when
// it has come (if the next cable is not faster and the switch cuts through:
// when 72 bytes of it have), and the one before it has left.
func pipeline(packets []Packet, cutThrough bool, delay Time, rates []int64) float64 {
	free := make([]float64, len(rates))
	var end float64
	for _, p := range packets {
		var come float64
		for i, r := range rates {
			ps := 8e12 / float64(r)
			begin := max(come, free[i])
			free[i] = begin + float64(p.Size)*ps
			end = free[i] + float64(delay)
			come = end
			if cutThrough && i+1 < len(rates) && rates[i+1] <= r {
				come = begin + headWire*ps + float64(delay)
			}
		}
	}
	return end
}

// An unloaded transfer takes what the formula says: 64 bytes to 16 MiB over 2
// to 6 cables of 25 to 400 Gb/s, store-and-forward and cut-through.
func TestUnloadedFormula(t *testing.T) {
	t.Parallel()
	sizes := []int{64, 1000, 4096, 4097, 65536, 1 << 20, 16 << 20}
	if testing.Short() || race.Enabled {
		sizes = sizes[:6]
	}
	rows := [][]int64{{100, 100, 400, 400, 100, 100}, {25, 100, 100, 25}, {400, 100, 25, 100}, {100, 400, 400, 25}}
	for _, rate := range []int64{25, 50, 100, 200, 400} {
		for cables := 2; cables <= 6; cables++ {
			row := make([]int64, cables)
			for i := range row {
				row[i] = rate
			}
			rows = append(rows, row)
		}
	}
	worst := 0.0
	for _, row := range rows {
		rates := make([]int64, len(row))
		for i := range row {
			rates[i] = row[i] * gbit
		}
		for _, cutThrough := range []bool{false, true} {
			for _, size := range sizes {
				sw := Switch{Buffer: 64 << 20, CutThrough: cutThrough}
				n, hosts := build(t, chain(sw, event.Microsecond, rates...))
				hosts[0].packets = message(size, 4096)
				want := pipeline(hosts[0].packets, cutThrough, event.Microsecond, rates)
				if row[0] == row[len(row)/2] {
					want = unloaded(hosts[0].packets, cutThrough, event.Microsecond, int64(len(row)), rates[0])
				}
				n.Kick(0, 0)
				finish(t, n)
				off := float64(n.Now())/want - 1
				worst = max(worst, off, -off)
				if off > 0.005 || off < -0.005 {
					t.Errorf("%d bytes over %v Gb/s, cut-through %v: %v, the formula says %.0f ps: %+.2f %%",
						size, row, cutThrough, n.Now(), want, 100*off)
				}
			}
		}
	}
	t.Logf("worst: %.3f %%", 100*worst)
}

// The time of one packet is exact to the picosecond, at rates that divide a
// second and at one that does not.
func TestWireTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate int64
		want Time // of 1000 bytes
	}{
		{gbit, 8_000_000}, {100 * gbit, 80_000}, {400 * gbit, 20_000}, {800 * gbit, 10_000},
		{56 * gbit, 142_858}, {7_777_777_777, 1_028_572},
	} {
		t.Run(fmt.Sprint(c.rate), func(t *testing.T) {
			n, hosts := build(t, chain(Switch{}, 7, c.rate))
			hosts[0].packets = []Packet{{Dst: 1, Size: 1000}, {Dst: 1, Size: 1000}}
			n.Kick(0, 0)
			finish(t, n)
			if got := hosts[1].at; len(got) != 2 || got[0] != c.want+7 || got[1] != 2*c.want+7 {
				t.Errorf("two packets arrive at %v, want %v and %v", got, c.want+7, 2*c.want+7)
			}
		})
	}
}
