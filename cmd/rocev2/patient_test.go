package main

import "slices"

// patient lets perf wait 4 s in place of half a second for a peer: on a busy
// machine a process may not run for as long.
func patient(args []string) []string {
	if args[0] == "perf" && !slices.Contains(args, "-u") {
		return append(slices.Clip(args), "-u", "17")
	}
	return args
}
