package main

import (
	"strings"
	"testing"
)

// A misspelled command, test, scenario or flag is answered with the one that
// was perhaps meant.
func TestDoYouMean(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"pref":                         `there is no command "pref" (do you mean perf?)`,
		"help pref":                    `there is no command "pref" (do you mean perf?)`,
		"bandwidth":                    `there is no command "bandwidth"` + "\n",
		"region lst":                   "there are add, cas, ls, read, write (do you mean ls?)",
		"help region lst":              "(do you mean ls?)",
		"perf wirte_bw":                "(do you mean write_bw?)",
		"sim incats":                   "(do you mean incast?)",
		"sim incast --sead 5":          "unknown flag: --sead (do you mean --seed?)",
		"perf write_bw --sise 5":       "unknown flag: --sise (do you mean --size?)",
		"perf write_bw -size 5":        "(do you mean --size?)",
		"perf write_bw -size=5":        "(do you mean --size?)",
		"perf write_bw -s 5x":          "-s, --size",
		"perf write_bw --size":         "flag needs an argument: --size\n",
		"perf write_bw -s":             "flag needs an argument: 's' in -s\n",
		"perf write_bw --nothing-like": "unknown flag: --nothing-like\n",
		"sim incast -seed 5":           "(do you mean --seed?)",
	} {
		r := invoke(t.Context(), strings.Fields(args)...)
		if r.code != exitUsage || !strings.Contains(r.err, want) || strings.Contains(r.err, "mean") != strings.Contains(want, "mean") {
			t.Errorf("%s: status %d, %s; want %s", args, r.code, r.err, want)
		}
	}
	for args, want := range map[string]string{"help perf": "Measure the bandwidth", "help": "Available Commands", "help perf write_bw": "--size", "--version": "rocev2 "} {
		if r := invoke(t.Context(), strings.Fields(args)...); r.code != exitOK || !strings.Contains(r.out, want) {
			t.Errorf("%s: status %d, %s%s", args, r.code, r.out, r.err)
		}
	}
}

// Typical mistakes are answered with what to write instead.
func TestTypicalMistakes(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"perf 127.0.0.1 write_bw":                  "the test comes first: rocev2 perf write_bw 127.0.0.1",
		"perf write_bw -s 64KB":                    "KB means 1000 or 1024 to different people: write 64K for",
		"perf write_bw -s 1mb":                     "write 1M for",
		"perf write_bw -s 99999999999":             "at most 2147483647 bytes",
		"perf write_bw -s 99999999999999999999999": "at most 2147483647 bytes",
		"perf write_bw -s 4194304K":                "at most 2147483647 bytes",
		"perf write_bw -s 64X":                     "a number with K or M",
		"perf write_bw -s K":                       "a number with K or M",
		"perf write_bw -s 1.5K":                    "a number with K or M",
		"perf write_bw -D 10s":                     `--duration "10s": it must be a number (seconds)`,
		"rping 127.0.0.1":                          `an address goes after -a, as in "rocev2 rping -a 127.0.0.1"`,
		"ucmatose 127.0.0.1":                       `an address goes after -s, as in "rocev2 ucmatose -s 127.0.0.1"`,
		"mckey 239.1.2.3":                          `an address goes after -m, as in "rocev2 mckey -m 239.1.2.3"`,
		"devinfo 127.0.0.1":                        `an address goes after -d, as in "rocev2 devinfo -d 127.0.0.1"`,
		"version 2":                                "version takes no arguments, but got \"2\"\n",
		"region ls 127.0.0.1:99999":                "a port is a number from 1 to 65535",
		"region ls 127.0.0.1:":                     "a port is a number from 1 to 65535",
		"region write 127.0.0.1/x -i .":            "--input .: it is a directory",
	} {
		if r := invoke(t.Context(), strings.Fields(args)...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%s: status %d, %s; want %s", args, r.code, r.err, want)
		}
	}
}

func TestSizeFlag(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"0": 0, "1": 1, "64K": 64 << 10, "64k": 64 << 10, "64KiB": 64 << 10, "1M": 1 << 20, "1MiB": 1 << 20, "1G": 1 << 30, "2147483647": 1<<31 - 1, "-5": -5} {
		n := -1
		if err := (sizeFlag{&n}).Set(text); err != nil || n != want {
			t.Errorf("%s: %d, %v; want %d", text, n, err, want)
		}
	}
}
