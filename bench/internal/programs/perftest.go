package programs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/faces"
	"github.com/gosoftroce/rocev2/bench/internal/peers"
)

// Perftest is a test of perftest between programs on the addresses Server and
// Client. The port of each address has an owner of its own; if they are the
// same, the programs share one.
type Perftest struct {
	Server, Client string
	Program        string // "ib_write_bw"
	Size           int    // bytes
	Iterations     int    // of latency tests, which are not bounded by time
	Events         bool   // asleep on a completion channel instead of polling
	Unit           string // of a test of bandwidth: cell.Gbps or cell.MsgRate
}

// Run runs the test. Its value is Gb/s or millions of messages a second, or µs
// for half of a round trip, or a whole one of READ and atomics.
func (t Perftest) Run(ctx context.Context, w cell.Window) cell.Sample {
	tool, err := faces.Program(ctx, "rocev2")
	if err != nil {
		return cell.Failed(err)
	}
	args := []string{"-s", strconv.Itoa(t.Size), "-p", "PORT", "-F"}
	parse := parseLatency
	if strings.HasSuffix(t.Program, "_bw") {
		parse = parseBandwidth
		// It counts between two margins, which -f says in seconds.
		args = append(args, "-D", fmt.Sprint(max(1, int(w.Measure/time.Second))), "--report_gbits")
	} else {
		args = append(args, "-n", strconv.Itoa(t.Iterations))
	}
	if t.Events {
		args = append(args, "-e")
	}
	side := func(addr string, peer ...string) []string {
		argv := append([]string{tool, "run", "--device", addr, "--", t.Program}, args...)
		return append(argv, peer...)
	}
	defer waitDaemons(ctx, t.Server, t.Client)
	return peers.Measure(ctx, peers.Pair{
		Server: side(t.Server), Client: side(t.Client, t.Server), Limit: w.Total() + 30*time.Second,
	}, func(out []byte) (cell.Sample, error) {
		s, err := parse(out, t.Size)
		if err == nil && t.Unit == cell.MsgRate {
			s.Value = s.Extra["mmsg"]
		}
		return s, err
	})
}

// parseBandwidth reads the table of a bandwidth test: size, iterations, peak
// and average bandwidth, message rate.
func parseBandwidth(out []byte, size int) (cell.Sample, error) {
	f, err := resultLine(out, size, 5)
	if err != nil {
		return cell.Sample{}, err
	}
	if f[3] <= 0 {
		return cell.Sample{}, errors.New("the figure is zero")
	}
	return cell.Sample{Value: f[3], Extra: map[string]float64{"mmsg": f[4]}}, nil
}

// parseLatency reads the table of a latency test: size, iterations, then in µs
// least, most, typical, mean, deviation, 99 % and 99.9 %.
func parseLatency(out []byte, size int) (cell.Sample, error) {
	f, err := resultLine(out, size, 9)
	if err != nil {
		return cell.Sample{}, err
	}
	if f[4] <= 0 {
		return cell.Sample{}, errors.New("the figure is zero")
	}
	return cell.Sample{Value: f[4], Extra: map[string]float64{"mean_us": f[5], cell.P99: f[7], cell.P999: f[8]}}, nil
}

// resultLine returns the numbers of the line that begins with the size.
func resultLine(out []byte, size, columns int) ([]float64, error) {
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if len(words) < columns || words[0] != strconv.Itoa(size) {
			continue
		}
		numbers := make([]float64, columns)
		for i := range numbers {
			var err error
			if numbers[i], err = strconv.ParseFloat(words[i], 64); err != nil {
				return nil, fmt.Errorf("%q is no line of results: %w", strings.TrimSpace(line), err)
			}
		}
		return numbers, nil
	}
	return nil, fmt.Errorf("no line of results for %d bytes", size)
}
