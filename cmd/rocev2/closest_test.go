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
