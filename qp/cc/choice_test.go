package cc

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// The text form chooses a law and its parameters, and says what is wrong with
// it.
func TestParseChoice(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Choice{
		"window":            {},
		"static":            {Law: LawStatic},
		"static,bytes=120K": {Law: LawStatic, Bytes: 120 << 10},
		"dcqcn":             {Law: LawDCQCN},
		"dcqcn,line=1G,ai=1M,hai=5M,min=10k,burst=16K": {Law: LawDCQCN, Line: 1e9, Additive: 1e6, Hyper: 5e6, Min: 1e4, Burst: 16 << 10},
		"dcqcn-adapter,line=400G":                      {Law: LawDCQCNAdapter, Line: 400e9},
		"dcqcn-host,line=1G,burst=1":                   {Law: LawDCQCNHost, Line: 1e9, Burst: 1},
		"dcqcn,line=1000":                              {Law: LawDCQCN, Line: 1000},
		"hpcc":                                         {Law: LawHPCC},
		"hpcc,line=25G,rtt=9us,eta=99,stages=0,wai=1K,burst=1": {Law: LawHPCC, Line: 25e9, Burst: 1, HPCC: HPCCConfig{
			RTT: 9 * time.Microsecond, Eta: 99, Stages: -1, Additive: 1 << 10}},
		"swift,target=50us,hop=1.5us,hops=5,range=1ms": {Law: LawSwift, Swift: SwiftConfig{
			Target: 50 * time.Microsecond, Hop: 1500, Hops: 5, Range: time.Millisecond}},
		"timely,line=1G,min=1M,ai=2M,low=1ms,high=2ms,rtt=100us,burst=16K": {Law: LawTimely, Line: 1e9, Min: 1e6, Additive: 2e6, Burst: 16 << 10, Timely: TimelyConfig{
			Low: time.Millisecond, High: 2 * time.Millisecond, RTT: 100 * time.Microsecond}},
	} {
		if got, err := ParseChoice(text); got != want || err != nil {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                           `"" is none of window, static, dcqcn, dcqcn-adapter, dcqcn-host`,
		"cubic":                      `"cubic" is none of`,
		"window,bytes=1":             "window has no options",
		"static,line=1G":             "the option of a static window is bytes",
		"static,bytes=0":             `"0" is not a size: a whole number of bytes, or of K or M of them, up to 1024M`,
		"dcqcn,":                     "the options of DCQCN are line, min, ai, hai and burst",
		"dcqcn,line":                 `"" is not a rate`,
		"dcqcn,line=1.5G":            `"1.5G" is not a rate: a whole number of bits per second, or of k, M or G of them, up to 17592G`,
		"dcqcn,line=-1":              "not a rate",
		"dcqcn,line=25g":             `"line=25g" in "dcqcn,line=25g": "25g" is not a rate`,
		"dcqcn,line=1G,line=2G":      `"line=2G" in "dcqcn,line=1G,line=2G": line is there twice`,
		"dcqcn,line=G":               "not a rate",
		"dcqcn,line=99999G":          "not a rate",
		"dcqcn,line=1k,min=2k":       "min is 2000, in bits per second: it takes 1000 to 1000, which is line",
		"dcqcn,line=1":               "line is 1, in bits per second: it takes 1000 to",
		"dcqcn,line=1G,burst=1025M":  "not a size",
		"hpcc,ai=1M":                 "the options of HPCC are line, rtt, eta, stages, wai and burst",
		"hpcc,eta=101":               "eta of HPCC is 101: it takes 1 to 100",
		"hpcc,eta=0":                 "eta of HPCC is 0: it takes 1 to 100",
		"hpcc,stages=-1":             `"-1" is not a number, 0 to 65535`,
		"hpcc,rtt=2s":                "rtt of HPCC is 2000000000: it takes 1 to 1000000000",
		"swift,target=50":            `"50" is not a time: a number with ns, us, ms or s, up to 10s, such as 50us`,
		"swift,target=0s":            "not a time",
		"swift,target=10us,hops=256": "hops of Swift is 256: it takes 0 to 255",
		"swift,target=100ns":         "target of Swift is 100: it takes 1000 to",
		"swift,line=1G":              "the options of Swift are target, hop, hops and range",
		"timely,low=2ms,high=1ms":    "high of TIMELY is 1000000: it takes 2000000 to",
		"timely,min=2G,line=1G":      "min of TIMELY is 2000000000: it takes 1000 to 1000000000",
	} {
		if _, err := ParseChoice(text); !errors.Is(err, ErrChoice) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	for law, name := range lawNames {
		c, err := ParseChoice(name)
		if err != nil || c.Law.String() != name || c.Law != Law(law) {
			t.Errorf("%q: %v, %v", name, c.Law, err)
		}
		make, err := c.Maker()
		if c.Law == LawHPCC {
			if !errors.Is(err, ErrNoTelemetry) || !errors.Is(CheckHosts("hpcc,eta=99"), ErrNoTelemetry) {
				t.Errorf("hpcc for sockets: %v", err)
			}
			continue
		}
		if err != nil || (make == nil) != (c.Law == LawWindow) {
			t.Errorf("%q makes nothing: %v", name, err)
		}
		if make != nil && make(Config{MaxBytes: 1 << 20}).Limit().Max != 1<<20 {
			t.Errorf("%q does not keep to the bounds", name)
		}
	}
	if _, err := (&Choice{Law: 77}).Maker(); !errors.Is(err, ErrChoice) {
		t.Error("there is a law 77")
	}
}
