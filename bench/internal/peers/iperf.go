package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
)

// IPerf returns a function that measures iperf3's TCP throughput in Gb/s, one
// stream, or one in each direction and their sum.
func IPerf(bidirectional bool) func(context.Context, cell.Window) cell.Sample {
	return func(ctx context.Context, w cell.Window) cell.Sample {
		c := command{
			server: []string{"iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", "PORT"},
			client: []string{"iperf3", "-c", "127.0.0.1", "-p", "PORT", "-J", "-t", wholeSeconds(w.Measure)},
			limit:  w.Total() + 20*time.Second,
		}
		if bidirectional {
			c.client = append(c.client, "--bidir")
		}
		return measure(ctx, c, parseIPerf)
	}
}

// IPerfOver returns a function that measures one TCP stream with a congestion
// control of the kernel's between two addresses, after the warm-up.
func IPerfOver(server, client, control string) func(context.Context, cell.Window) cell.Sample {
	return func(ctx context.Context, w cell.Window) cell.Sample {
		return measure(ctx, command{
			server: []string{"iperf3", "-s", "-1", "-B", server, "-p", "PORT"},
			client: []string{"iperf3", "-c", server, "-B", client, "-p", "PORT", "-J", "-C", control,
				"-t", wholeSeconds(w.Measure), "-O", wholeSeconds(w.Warm)},
			limit: w.Total() + 20*time.Second,
		}, parseIPerf)
	}
}

// wholeSeconds rounds up: iperf3 knows no fractions.
func wholeSeconds(d time.Duration) string {
	return fmt.Sprint(int(math.Ceil(max(d.Seconds(), 1))))
}

func parseIPerf(out []byte) (cell.Sample, error) {
	type sum struct {
		BitsPerSecond float64 `json:"bits_per_second"`
		Retransmits   uint64  `json:"retransmits"`
	}
	var r struct {
		Error string `json:"error"`
		End   struct {
			Sent     sum  `json:"sum_sent"`
			Received sum  `json:"sum_received"`
			Reverse  *sum `json:"sum_received_bidir_reverse"`
		} `json:"end"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return cell.Sample{}, err
	}
	if r.Error != "" {
		return cell.Sample{}, errors.New(r.Error)
	}
	v := r.End.Received.BitsPerSecond
	if r.End.Reverse != nil {
		v += r.End.Reverse.BitsPerSecond
	}
	if v <= 0 {
		return cell.Sample{}, errors.New("no throughput in the output")
	}
	s := cell.Sample{Value: v / 1e9}
	if n := r.End.Sent.Retransmits; n > 0 {
		s.Count = map[string]uint64{"TCP retransmissions": n}
	}
	return s, nil
}
