package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop/perftest"
)

// TestRowsArePerftests compares rows with what ib_write_bw, ib_send_bw and
// ib_read_lat 6.06 printed.
func TestRowsArePerftests(t *testing.T) {
	t.Parallel()
	bw := perftest.Test{Verb: perftest.Write, Kind: perftest.Bandwidth}
	lat := perftest.Test{Verb: perftest.Read, Kind: perftest.Latency}
	us := func(v float64) time.Duration { return time.Duration(v * 1000) }
	for name, tt := range map[string]struct {
		cfg   perftest.Config
		flags reportFlags
		r     perftest.Result
		want  string
	}{
		"MiB": {
			perftest.Config{Test: bw}, reportFlags{},
			perftest.Result{Size: 65536, Iterations: 100, Peak: 24.43 * (1 << 20), Average: 16.40 * (1 << 20), MsgRate: 262},
			" #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n" +
				" 65536      100              24.43              16.40  \t\t   0.000262\n",
		},
		"Gb, slow": {
			perftest.Config{Test: bw}, reportFlags{gbits: true},
			perftest.Result{Size: 65536, Iterations: 200, Peak: 0.052637e9 / 8, Average: 0.009330e9 / 8, MsgRate: 18},
			" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n" +
				" 65536      200           0.052637            0.009330            0.000018\n",
		},
		"Gb": {
			perftest.Config{Test: bw}, reportFlags{gbits: true},
			perftest.Result{Size: 8, Iterations: 2, Peak: 3e9, Average: 2.5e9, MsgRate: 5e6},
			" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n" +
				" 8          2                24.00              20.00  \t\t   5.000000\n",
		},
		"no peak": {
			perftest.Config{Test: bw}, reportFlags{noPeak: true},
			perftest.Result{Size: 65536, Iterations: 100, Peak: 1 << 30, Average: 24.84 * (1 << 20), MsgRate: 398},
			" #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n" +
				" 65536      100              0.00               24.84  \t\t   0.000398\n",
		},
		"duration": {
			perftest.Config{Test: bw, Duration: time.Second}, reportFlags{},
			perftest.Result{Size: 64, Iterations: 6100, Peak: 1 << 30, Average: 0.19 * (1 << 20), MsgRate: 3047},
			" #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n" +
				" 64         6100             0.00               0.19   \t\t   0.003047\n",
		},
		"latency": {
			perftest.Config{Test: lat}, reportFlags{},
			perftest.Result{Size: 2, Iterations: 50, Latency: &perftest.Latencies{
				Min: us(306.41), Max: us(4768.14), Typical: us(417.56), Average: us(714.07), StdDev: us(707.33), P99: us(4768.14), P999: us(4768.14)}},
			" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n" +
				" 2       50          306.41         4768.14      417.56   \t       714.07      \t707.33 \t\t4768.14 \t\t4768.14\n",
		},
		"latency, duration": {
			perftest.Config{Test: lat, Duration: time.Second}, reportFlags{},
			perftest.Result{Size: 2, Iterations: 2156, MsgRate: 1077.65, Latency: &perftest.Latencies{Average: us(927.95)}},
			" #bytes        #iterations       t_avg[usec]    tps average\n" +
				" 2             2156            927.95         1077.65\n",
		},
		"one number": {
			perftest.Config{Test: bw}, reportFlags{output: "bandwidth"},
			perftest.Result{Size: 65536, Iterations: 100, Average: 20.79513 * (1 << 20)}, "20.795130\n",
		},
		"one rate": {
			perftest.Config{Test: bw}, reportFlags{output: "message_rate"},
			perftest.Result{Size: 65536, Iterations: 100, MsgRate: 262}, "0.000262\n",
		},
		"one latency": {
			perftest.Config{Test: lat}, reportFlags{output: "latency"},
			perftest.Result{Size: 2, Latency: &perftest.Latencies{Average: us(714.07)}}, "714.070000\n",
		},
	} {
		var b bytes.Buffer
		p := tt.flags.printer(&b, tt.cfg, "device", 1)
		p.result(tt.r)
		if b.String() != tt.want {
			t.Errorf("%s:\n%q, expected\n%q", name, b.String(), tt.want)
		}
	}
}

func TestCHex(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		v     uint64
		width int
		want  string
	}{
		{0, 4, "0000"}, {0x80, 4, "0x80"}, {0x11, 6, "0x0011"}, {0x5379e, 6, "0x5379e"}, {0x28e, 8, "0x00028e"},
		{0x7f302b6dd000, 16, "0x007f302b6dd000"},
	} {
		if got := cHex(tt.v, tt.width); got != tt.want {
			t.Errorf("%#x in %d is %s, expected %s", tt.v, tt.width, got, tt.want)
		}
	}
}

// column returns a column of the last row of a table, counted from 1.
func column(t *testing.T, out string, n int) float64 {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	f := strings.Fields(lines[len(lines)-2])
	if len(f) < n {
		t.Fatalf("the row is %q", f)
	}
	v, err := strconv.ParseFloat(f[n-1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestReportGbits checks what a script that reads column 4 gets.
func TestReportGbits(t *testing.T) {
	t.Parallel()
	_, c := pair(t, "perf", "write_bw", "-n", "200", "--report_gbits")
	if !strings.Contains(c.out, "BW average[Gb/sec]") {
		t.Errorf("the client prints\n%s", c.out)
	}
	gbits, mpps := column(t, c.out, 4), column(t, c.out, 5)
	if want := mpps * 65536 * 8 / 1000; gbits < want*0.98-0.01 || gbits > want*1.02+0.01 {
		t.Errorf("column 4 is %v; expected %v from the message rate", gbits, want)
	}
}

func TestPerfOptions(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"write_bw -n 64 -s 4K -c RC -N -l 8 -q 2 -F -x 1 --use_old_post_send --force-link Ethernet",
		"send_bw -n 100 -l 16 --recv_post_list 16 -r 64 -t 64",
		"send_bw -n 100 -b -l 4 --recv_post_list 3 -r 16",
		"read_bw -n 50 -l 5 -Q 5 -t 20",
		"send_bw -n 300 -s 16 -l 128 -t 256",
		"write_bw -D 0.3 -f 0.1",
		"write_bw -n 64 -w 0.000001 -y 0.0000001",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			pair(t, append([]string{"perf"}, strings.Fields(args)...)...)
		})
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	args := "perf write_bw -n 64"
	for flag, want := range map[string]string{"-w": "BW result is below bw limit", "-y": "message rate is below msg_rate limit"} {
		s := serve(t, args, "--timeout", "60s")
		c := s.client(t, args+" "+flag+" 1e9")
		if c.code != exitFailure || !strings.Contains(c.err, want) || !strings.Contains(c.out, "65536") {
			t.Errorf("the client ends with %d: %s\n%s", c.code, c.err, c.out)
		}
		if r := s.result(); r.code != 0 {
			t.Errorf("the server ends with %d: %s", r.code, r.err)
		}
	}
}

func TestOutJSON(t *testing.T) {
	t.Parallel()
	for args, keys := range map[string][]string{
		"perf write_bw -n 32":                    {"MsgSize", "n_iterations", "BW_peak", "BW_average", "MsgRate"},
		"perf send_lat -n 32":                    {"MsgSize", "n_iterations", "t_min", "t_max", "t_typical", "t_avg", "t_stdev", "percentile_99", "percentile_99.9"},
		"perf write_bw -n 2 -a":                  nil,
		"perf write_bw -n 32 --output bandwidth": {"BW_average"},
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "report.json")
			s := serve(t, args, "--timeout", "60s")
			if c := s.client(t, args+" --out_json --out_json_file "+file); c.code != 0 {
				t.Fatalf("the client ends with %d: %s", c.code, c.err)
			}
			s.result()
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var v struct {
				Info    map[string]any  `json:"test_info"`
				Results json.RawMessage `json:"results"`
			}
			if err := json.Unmarshal(b, &v); err != nil {
				t.Fatalf("%v in %s", err, b)
			}
			if v.Info["Connection_type"] != "RC" || v.Info["Number_of_qps"] != 1.0 {
				t.Errorf("test_info is %v", v.Info)
			}
			if keys == nil {
				var list []map[string]any
				if err := json.Unmarshal(v.Results, &list); err != nil || len(list) != 23 {
					t.Errorf("%d results, %v", len(list), err)
				}
				return
			}
			var r map[string]any
			if err := json.Unmarshal(v.Results, &r); err != nil {
				t.Fatal(err)
			}
			for _, k := range keys {
				if _, ok := r[k].(float64); !ok {
					t.Errorf("%q is %v in %s", k, r[k], v.Results)
				}
			}
		})
	}
}

func TestPerfVersion(t *testing.T) {
	t.Parallel()
	if r := invoke(t.Context(), "perf", "write_bw", "-V"); r.code != 0 || !strings.Contains(r.out, "Version: 6.06") {
		t.Errorf("exit status %d, %q", r.code, r.out)
	}
}
