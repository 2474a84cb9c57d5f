package programs

import (
	"context"
	"errors"
	"os/exec"
	"testing"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
)

const bandwidthTable = `---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      123457           0.00               25.31              0.048275
---------------------------------------------------------------------------------------
`

const latencyTable = ` #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 8       5000          9.10           120.20       11.25              12.50          1.30            15.00                  98.75
`

func TestTablesOfPerftest(t *testing.T) {
	t.Parallel()
	s, err := parseBandwidth([]byte(bandwidthTable), 65536)
	if err != nil || s.Value != 25.31 || s.Extra["mmsg"] != 0.048275 {
		t.Errorf("bandwidth: %+v, %v", s, err)
	}
	s, err = parseLatency([]byte(latencyTable), 8)
	if err != nil || s.Value != 11.25 || s.Extra["mean_us"] != 12.5 || s.Extra[cell.P999] != 98.75 {
		t.Errorf("latency: %+v, %v", s, err)
	}
	for name, in := range map[string]string{
		"nothing": "", "another size": "32 1 2 3 4 5 6 7 8\n", "a short line": "8 5000 1 2\n", "words": "8 a b c d e f g h\n",
		"zero": "8 1 0 0 0 0 0 0 0\n",
	} {
		_, e1 := parseBandwidth([]byte(in), 8)
		_, e2 := parseLatency([]byte(in), 8)
		if e1 == nil || e2 == nil {
			t.Errorf("%s: %v, %v", name, e1, e2)
		}
	}
}

func TestFigures(t *testing.T) {
	t.Parallel()
	s, err := parseFigure("open_us 312.5\npost_ns 99\n", "post_ns")
	if err != nil || s.Value != 99 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, in := range []string{"", "post_ns\n", "post_ns x\n", "post_ns NaN\n", "post_ns -1\n", "open_us 1\n"} {
		if s, err := parseFigure(in, "post_ns"); err == nil {
			t.Errorf("%q gives %v", in, s.Value)
		}
	}
}

// The programs of this package compile where the tools are.
func TestProgramsCompile(t *testing.T) {
	t.Parallel()
	for name, cc := range map[string][]string{"calls": {"cc", "-libverbs"}, "epoll": {"cc", "-libverbs"}, "mpi": {"mpicc"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(cc[0]); errors.Is(err, exec.ErrNotFound) {
				t.Skipf("%s is not installed (packages gcc, libopenmpi-dev)", cc[0])
			}
			if cc[0] == "cc" && exec.Command("cc", "-E", "-include", "infiniband/verbs.h", "-x", "c", "/dev/null").Run() != nil {
				t.Skip("infiniband/verbs.h is not installed (package libibverbs-dev)")
			}
			if _, err := build(context.Background(), t.TempDir(), name, append(cc, "-Wall", "-Werror")...); err != nil {
				t.Error(err)
			}
		})
	}
}
