package report

import (
	"testing"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
)

// read gives each sample of a row its readings of the reference.
func read(r cell.Row, readings ...[2]float64) *cell.Row {
	for i, v := range readings {
		r.Samples[i].Before, r.Samples[i].After = v[0], v[1]
	}
	return &r
}

// A round in which the machine changed its speed says nothing about a ratio.
func TestUnsteadyRoundsAreLeftOut(t *testing.T) {
	t.Parallel()
	raw := row("raw/4140/icrc", "raw UDP", cell.Gbps, 40, 14, 40, 40)
	ours := read(row("ours/write/1MiB", "rocev2", cell.Gbps, 30, 12, 32, 36),
		[2]float64{40, 14}, [2]float64{14, 16}, [2]float64{40, 40}, [2]float64{0, 40})
	tcp := read(row("iperf3/tcp", "iperf3 TCP", cell.Gbps, 30, 12, 16, 30),
		[2]float64{14, 15}, [2]float64{30, 31}, [2]float64{40, 38}, [2]float64{40, 40})
	rows := Rows{raw.Name: &raw, ours.Name: ours, tcp.Name: tcp}
	for _, c := range []struct {
		cell, peer, want string
	}{
		{ours.Name, raw.Name, "0.8 ×, 2 of 4 rounds left out"}, // 12/15 and 32/40
		{ours.Name, tcp.Name, "2 ×, 3 of 4 rounds left out"},
		{raw.Name, tcp.Name, "1.89 × (0.483 … 2.54)"}, // 14.5/30, 30.5/12, 39/16, 40/30
	} {
		v := Target{Cell: c.cell, Peer: c.peer}.Judge(rows)
		if got, _ := v.Result(); got != c.want {
			t.Errorf("%s beside %s: %s (%s), want %s", c.cell, c.peer, got, v.Why, c.want)
		}
	}
	never := read(row("ours/send/1MiB", "rocev2", cell.Gbps, 30, 12), [2]float64{40, 14}, [2]float64{14, 40})
	rows[never.Name] = never
	if v := (Target{Cell: never.Name, Peer: raw.Name}).Judge(rows); v.Why != "the machine was not steady in any of 2 rounds" {
		t.Errorf("without a steady round: %+v", v)
	}
}
