package peers

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
)

// UCXTest is a test of ucx_perftest.
type UCXTest struct {
	Name       string // "ucp_put_bw"
	Size       int
	Iterations int
	Depth      int // operations under way at most; 0 = as the tool has it
	Value      UCXValue
	Shm        bool // through shared memory, as UCX has it between processes of one host
}

// UCXValue says which of its figures is wanted.
type UCXValue int

// Values.
const (
	UCXGbps    UCXValue = iota // overall bandwidth
	UCXMsgRate                 // overall message rate
	UCXLatency                 // median of half of a round trip
)

// UCX returns a function that runs a test over UCX's tcp transport on loopback,
// or through shared memory.
func UCX(t UCXTest) func(context.Context, cell.Window) cell.Sample {
	env := []string{"UCX_TLS=tcp", "UCX_NET_DEVICES=lo"}
	if t.Shm {
		env = []string{"UCX_TLS=shm,self"}
	}
	return func(ctx context.Context, _ cell.Window) cell.Sample {
		return measure(ctx, command{
			server: []string{"ucx_perftest", "-p", "PORT"},
			client: []string{
				"ucx_perftest", "127.0.0.1", "-p", "PORT", "-t", t.Name, "-s", strconv.Itoa(t.Size),
				"-n", strconv.Itoa(t.Iterations), "-w", strconv.Itoa(max(t.Iterations/10, 10)), "-f", "-v",
				"-O", strconv.Itoa(t.Depth),
			},
			env:   env,
			limit: 40 * time.Second,
		}, func(out []byte) (cell.Sample, error) { return parseUCX(out, t.Value) })
	}
}

// parseUCX reads the CSV lines; the tool's MB are 2^20 bytes.
func parseUCX(out []byte, want UCXValue) (cell.Sample, error) {
	records, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil {
		return cell.Sample{}, err
	}
	if len(records) < 2 {
		return cell.Sample{}, errors.New("no line of results")
	}
	head, last := records[0], records[len(records)-1]
	get := func(suffix string) (float64, error) {
		for i, h := range head {
			if strings.HasSuffix(h, suffix) {
				return strconv.ParseFloat(last[i], 64)
			}
		}
		return 0, fmt.Errorf("there is no column %s", suffix)
	}
	bw, e1 := get("overall_bw")
	rate, e2 := get("overall_mr")
	p50, e3 := get("percentile_lat")
	if err := errors.Join(e1, e2, e3); err != nil {
		return cell.Sample{}, err
	}
	s := cell.Sample{Extra: map[string]float64{"gbps": bw * 8 * (1 << 20) / 1e9, "mmsg": rate / 1e6, "p50_us": p50}}
	name := map[UCXValue]string{UCXGbps: "gbps", UCXMsgRate: "mmsg", UCXLatency: "p50_us"}[want]
	if s.Value = s.Extra[name]; s.Value <= 0 {
		return s, errors.New("the figure is zero")
	}
	delete(s.Extra, name)
	return s, nil
}
