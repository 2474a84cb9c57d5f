package peers

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
)

func golden(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What the tools really printed gives the figure that a person reads from it.
func TestOutputOfTheTools(t *testing.T) {
	t.Parallel()
	ucx := func(v UCXValue) func([]byte) (cell.Sample, error) {
		return func(b []byte) (cell.Sample, error) { return parseUCX(b, v) }
	}
	for _, c := range []struct {
		name, file string
		parse      func([]byte) (cell.Sample, error)
		want       float64
	}{
		{"iperf3", "iperf.json", parseIPerf, 22.665753664},
		{"iperf3 --bidir, the sum of what both received", "iperf_bidir.json", parseIPerf, 11.358461478 + 10.805194483},
		{"fi_pingpong, MB of 10^6 bytes", "pingpong.txt", parsePingpong, 4678.14 * 8 / 1000},
		{"ucx_perftest, MB of 2^20 bytes", "ucx.csv", ucx(UCXGbps), 3167.42 * 8 * 1.048576 / 1000},
		{"ucx_perftest, rate", "ucx.csv", ucx(UCXMsgRate), 0.003167},
		{"ucx_perftest, latency", "ucx.csv", ucx(UCXLatency), 4.739},
	} {
		s, err := c.parse(golden(t, c.file))
		if err != nil || math.Abs(s.Value-c.want) > 1e-6*c.want {
			t.Errorf("%s: %v, %v, want %v", c.name, s.Value, err, c.want)
		}
		if !s.OK() {
			t.Errorf("%s: failed: %s", c.name, s.Why())
		}
	}
}

func TestOutputWithoutResultsIsAnError(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"nothing": "", "text": "connection refused\n", "a header": "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n",
		"iperf's error": `{"error": "unable to connect"}`, "no sums": `{"end": {}}`,
		"a CSV header": "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n",
		"zero":         "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n1,0,0,0,0,0,0,0\n",
		"no number":    "1m 500 =500 1000m 0.22s fast 224.14 0.00\n",
	} {
		_, e1 := parseIPerf([]byte(in))
		_, e2 := parsePingpong([]byte(in))
		_, e3 := parseUCX([]byte(in), UCXGbps)
		for i, err := range []error{e1, e2, e3} {
			if err == nil {
				t.Errorf("%s: parser %d found a figure", name, i)
			}
		}
	}
	if _, err := parseIPerf([]byte(`{"error": "unable to connect"}`)); err == nil || err.Error() != "unable to connect" {
		t.Errorf("iperf3's own words are lost: %v", err)
	}
}

func TestListens(t *testing.T) {
	t.Parallel()
	table := []byte(`  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
`)
	for port, want := range map[int]bool{0x1f90: true, 0x1f91: false, 0x1f92: false} {
		if listens(table, port) != want {
			t.Errorf("port %#x listens: %v", port, !want)
		}
	}
}

func TestFailingToolsSayWhy(t *testing.T) {
	t.Parallel()
	s := measure(t.Context(), command{server: []string{"/nonexistent/server"}, client: []string{"/nonexistent/client"}, limit: 1e9},
		func([]byte) (cell.Sample, error) { return cell.Sample{}, errors.New("unreachable") })
	if s.OK() || s.Err == "" {
		t.Errorf("a server that does not exist: %+v", s)
	}
}

// A server that finds its port taken gets another one.
func TestServersThatEndAtOnceAreStartedAgain(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skipf("this system has no shell (run it on a Unix): %v", err)
	}
	count := filepath.Join(t.TempDir(), "count")
	s := measure(t.Context(), command{server: []string{"/bin/sh", "-c", "echo x >>" + count}, client: []string{"true"}, limit: 10e9},
		func([]byte) (cell.Sample, error) { return cell.Sample{}, nil })
	b, err := os.ReadFile(count)
	if err != nil || len(b) != 4*len("x\n") || s.OK() {
		t.Errorf("%v: started %d times, want 4; %+v", err, len(b)/2, s)
	}
}
