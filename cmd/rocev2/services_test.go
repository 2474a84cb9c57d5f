package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestServices runs the tool over every transport service.
func TestServices(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"pingpong -t uc -n 20":                       "163840 bytes in ",
		"pingpong -t ud -n 20 -e":                    "40960 bytes in ",
		"pingpong -t srq -n 100 -q 8 -s 64":          "12800 bytes in ",
		"pingpong -t xrc":                            "40960 bytes in ",
		"perf send_bw -c UC -n 50 -s 4096":           "Connection type : UC\t\tUsing SRQ      : OFF",
		"perf send_bw -c UD -n 50":                   "Max inline data : 0[B]",
		"perf send_bw -c XRC -n 50 -b":               "Connection type : XRC\t\tUsing SRQ      : ON",
		"perf send_lat -c UD -n 20":                  "Send Latency Test",
		"perf write_lat -c UC -n 20":                 "Connection type : UC",
		"perf read_bw -c XRC -n 20 -q 2":             "RDMA_Read BW Test",
		"perf send_bw --use-srq -n 50 -q 4 -s 64":    "Connection type : RC\t\tUsing SRQ      : ON",
		"perf send_lat --use-srq -n 20":              "Using SRQ      : ON",
		"perf send_bw -c ud --use-srq -n 50 -s 1000": "Connection type : UD\t\tUsing SRQ      : ON",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			if _, c := pair(t, strings.Fields(args)...); !strings.Contains(c.out, want) {
				t.Errorf("%q is not in\n%s", want, c.out)
			}
		})
	}
}

// TestLossIsReported loses datagrams on the way out of the client: the server
// ends and counts them.
func TestLossIsReported(t *testing.T) {
	t.Parallel()
	args := strings.Fields("perf send_bw -c UD -n 500 -s 64")
	s, _ := sides(t, args, append(slices.Clone(args), "--fault", "drop:nth=10:dir=out"))
	if !strings.Contains(s.out, " messages did not arrive\n") {
		t.Errorf("the server prints\n%s", s.out)
	}
	s, _ = sides(t, append(slices.Clone(args), "--json"), append(slices.Clone(args), "--fault", "drop:nth=10:dir=out"))
	var v struct {
		Service          string
		Lost, Iterations int
	}
	if err := json.Unmarshal([]byte(s.out), &v); err != nil || v.Service != "UD" || v.Lost == 0 || v.Lost+v.Iterations != 500 {
		t.Errorf("%v: %+v of %s", err, v, s.out)
	}
}
