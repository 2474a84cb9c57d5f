// Package sims plays the same traffic on the same networks in this project's
// simulator and in others: htsim, and the ns-3 of the HPCC paper. It fetches
// those at a pinned commit, builds them, runs them as programs of their own and
// reads what they print. Nothing of them is in this repository.
//
// It measures processes: user and system time, and the most memory that was
// resident. Results are compared as far as models are comparable: see
// bench/README.md.
package sims
