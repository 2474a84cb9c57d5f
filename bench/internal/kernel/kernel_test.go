package kernel

import (
	"math"
	"testing"
)

const perftestOutput = `
************************************
* Waiting for client to connect... *
************************************
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF		Device         : rxe0
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      500              67.31              63.06  		   0.001009
---------------------------------------------------------------------------------------
`

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := parsePerftest(perftestOutput, messageSize)
	if err != nil || math.Abs(got-63.06*1.048576*8/1000) > 1e-9 {
		t.Errorf("perftest: %v Gb/s, %v", got, err)
	}
	if v, err := parsePerftest(perftestOutput, 1<<20); err == nil {
		t.Errorf("perftest: %v Gb/s of another message size", v)
	}
	got, err = parseOurs("waiting\n" + `{"op":"write_bw","role":"client","size":65536,"gbps":0.34310914,"mpps":0.00065}` + "\n")
	if err != nil || got != 0.34310914 {
		t.Errorf("ours: %v Gb/s, %v", got, err)
	}
	for _, bad := range []string{"", "Couldn't connect to 198.18.0.4:21000\n", " 65536 500 x y z\n", "{}\n"} {
		if v, err := parsePerftest(bad, messageSize); err == nil {
			t.Errorf("perftest's output %q has %v Gb/s", bad, v)
		}
		if v, err := parseOurs(bad); err == nil {
			t.Errorf("our output %q has %v Gb/s", bad, v)
		}
	}
}
