// Package sweep plays a scenario of package fabric/lab many times, with other
// seeds and other settings, and compares what came out.
//
// A [Plan] is a scenario, seeds and settings with their values. Its runs are
// all of them with each other, in a fixed order. A run is a function of the
// text of the scenario, its settings and its seed, so it does not matter where
// and when it is played: each is one line of JSON, a [Record]. A plan has a
// name, its digest, and each record bears it, so that records of several
// machines, or of a sweep that was interrupted, are put together without a
// doubt that they belong together.
//
//  1. [Plan.Runs] lists the runs; a shard has each n-th of them.
//  2. [Play] plays those that have no record yet, some at a time.
//  3. [Read] reads records, and [Table] writes medians, their confidence
//     intervals, and for each seed how the settings compare with the first.
package sweep
