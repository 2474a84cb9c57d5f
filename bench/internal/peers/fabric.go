package peers

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
)

// Libfabric returns a function that measures fi_pingpong of messages of size
// bytes with a provider, in Gb/s. Ping-pong has one message under way, in turns
// in either direction.
func Libfabric(provider string, size, iterations int) func(context.Context, cell.Window) cell.Sample {
	return func(ctx context.Context, _ cell.Window) cell.Sample {
		common := []string{"fi_pingpong", "-p", provider, "-e", "rdm", "-d", "lo", "-S", strconv.Itoa(size), "-I", strconv.Itoa(iterations)}
		return measure(ctx, command{
			server: append(common[:len(common):len(common)], "-B", "PORT"),
			client: append(common[:len(common):len(common)], "-P", "PORT", "127.0.0.1"),
			limit:  40 * time.Second,
		}, parsePingpong)
	}
}

// parsePingpong reads the table of fi_pingpong; its MB are 10^6 bytes.
func parsePingpong(out []byte) (cell.Sample, error) {
	var s cell.Sample
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) != 8 || f[0] == "bytes" {
			continue
		}
		mb, err := strconv.ParseFloat(f[5], 64)
		if err != nil {
			return s, fmt.Errorf("%q is no number of MB/s", f[5])
		}
		us, err := strconv.ParseFloat(f[6], 64)
		if err != nil {
			return s, fmt.Errorf("%q is no number of microseconds", f[6])
		}
		s.Value = mb * 8 / 1e3
		s.Extra = map[string]float64{"us_per_message": us}
		if sent, acked := f[1], strings.TrimPrefix(f[2], "="); sent != acked && f[2] != "=" {
			s.Count = map[string]uint64{"messages not acknowledged": 1}
		}
	}
	if s.Value <= 0 {
		return s, fmt.Errorf("no line of results in %q", lastLine(out))
	}
	return s, nil
}
