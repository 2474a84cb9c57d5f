// Package record writes what a run of package lab has come to as files for
// other programs: tables as CSV, captures of ports as pcapng, and a trace for
// Perfetto. docs/fabric-results.md describes each column. What is written is a
// function of the scenario and its seed: the same bytes each time, on each
// machine. It opens no files.
package record
