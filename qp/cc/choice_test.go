package cc

import (
	"errors"
	"strings"
	"testing"
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
	} {
		if got, err := ParseChoice(text); got != want || err != nil {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                          `"" is none of window, static, dcqcn, dcqcn-adapter, dcqcn-host`,
		"cubic":                     `"cubic" is none of`,
		"window,bytes=1":            "window has no options",
		"static,line=1G":            "the option of a static window is bytes",
		"static,bytes=0":            `"0" is not a size: a whole number of bytes, or of K or M of them, up to 1024M`,
		"dcqcn,":                    "the options of DCQCN are line, min, ai, hai and burst",
		"dcqcn,line":                `"" is not a rate`,
		"dcqcn,line=1.5G":           `"1.5G" is not a rate: a whole number of bits per second, or of k, M or G of them, up to 17592G`,
		"dcqcn,line=-1":             "not a rate",
		"dcqcn,line=25g":            `"line=25g" in "dcqcn,line=25g": "25g" is not a rate`,
		"dcqcn,line=1G,line=2G":     `"line=2G" in "dcqcn,line=1G,line=2G": line is there twice`,
		"dcqcn,line=G":              "not a rate",
		"dcqcn,line=99999G":         "not a rate",
		"dcqcn,line=1k,min=2k":      "min is 2000, in bits per second: it takes 1000 to 1000, which is line",
		"dcqcn,line=1":              "line is 1, in bits per second: it takes 1000 to",
		"dcqcn,line=1G,burst=1025M": "not a size",
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
