package dissect_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/observe/dissect"
)

// fits returns the numbers of the frames that fit a filter.
func fits(t *testing.T, capture, text string) (list []string) {
	t.Helper()
	filter, err := dissect.ParseFilter(text)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(golden + capture + ".pcap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := dissect.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	for {
		p, err := c.Next()
		if err != nil {
			return list
		}
		if filter.Match(p) {
			list = append(list, fmt.Sprint(p.Number))
		}
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"cm":                             "1 2 3 40 41",
		"mad and not cm":                 "",
		"cm.message=REQ,DREP":            "1 41",
		"cm.message != req and cm":       "2 3 40 41",
		"frame 4-6,9":                    "4 5 6 9",
		"frame<3 or frame>=41":           "1 2 41",
		"kind read":                      "6 7 18 19 30 31",
		"kind=read && response":          "7 19 31",
		"opcode=RC_RDMA_WRITE_ONLY":      "12 24 36",
		"opcode WRITE_ONLY":              "12 24 36",
		"opcode 10":                      "12 24 36",
		"rkey 0x8a8":                     "12 24 36",
		"ack and psn 5401029":            "5",
		"src 198.18.0.4 and kind=send":   "1 3 4 10 16 22 28 34 40",
		"host 198.18.0.0/24 and frame<3": "1 2",
		"host=192.0.2.1":                 "",
		"not service=rc":                 "1 2 3 40 41",
		"! (service rc or frame > 39)":   "1 2 3",
		"imm or becn or marked":          "",
		"payload=100 and dst=198.18.0.2": "7 19 31",
		"completes and connection=1":     "5 7 9 11 13 15 17 19 21 23 25 27 29 31 33 35 37 39",
		"message=1 and request":          "4 6",
		"time 0.02-0.0204":               "4 5",
		"rtt > 440us":                    "7",
		"qp=0x16 and frame<5":            "1 2 3 4",
		"destqp 1":                       "1 2 3 40 41",
		"icrc!=good":                     "",
		"cm or rnr and icrc=bad":         "1 2 3 40 41", // and binds first
		"(cm or rnr) and icrc=bad":       "",
		"vlan != 7 and frame=1":          "1",
		"vlan < 7":                       "",
		"ackreq and request and msn=1":   "",
		"CM.MESSAGE=rtu":                 "3",
	} {
		if got := strings.Join(fits(t, "rping", text), " "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// Every term of the documentation is a filter.
func TestFilterTerms(t *testing.T) {
	t.Parallel()
	for _, flags := range []bool{false, true} {
		terms := dissect.FilterTerms(flags)
		if len(terms) < 20 {
			t.Errorf("%d terms", len(terms))
		}
		for _, term := range terms {
			if _, err := dissect.ParseFilter(term[0]); err != nil || term[1] == "" {
				t.Errorf("%v: %v", term, err)
			}
		}
	}
}

func TestFilterErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                        "column 1: it is empty",
		"foo":                     `column 1: there is no flag "foo"`,
		"cm and retransmit":       "column 8: there is no flag \"retransmit\"; did you mean retransmitted?",
		"opc=1":                   `column 1: there is no field "opc"; did you mean opcode?`,
		"psn":                     "column 1: psn needs a value, such as psn 5401029",
		"psn =":                   `column 6: a value must follow "="`,
		"psn = and":               `column 7: a value must follow "="`,
		"psn=x":                   `column 5: psn: "x" is not a number`,
		"psn=9-1":                 "column 5: psn: the range 9-1 ends before it begins",
		"psn<1-2":                 `column 5: psn: "1-2" is not a number`,
		"host=foo":                `column 6: host: "foo" is neither an IP address nor a prefix`,
		"host<1.2.3.4":            "column 6: host: it can be compared with = and != only",
		"kind=cm":                 `column 6: kind: "cm" is none of`,
		"opcode=SEND":             `column 8: opcode: there is no opcode "SEND"`,
		"cm.message=FOO":          `column 12: cm.message: "FOO" is none of REQ`,
		"rtt>fast":                `column 5: rtt: "fast" is not a time`,
		"(cm":                     "column 4: the parenthesis of column 1 is not closed",
		"cm)":                     "column 3: a parenthesis too many",
		"cm nak":                  `column 4: "nak" follows a condition`,
		"cm and":                  "column 7: a condition is missing at the end",
		"and cm":                  `column 1: a condition must stand here, not "and"`,
		"cm & nak":                `column 4: "&" follows a condition`,
		"cm=yes":                  `column 1: there is no field "cm"`,
		strings.Repeat("!", 1000): "more than 100 levels",
	} {
		_, err := dissect.ParseFilter(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
