// Package programs holds tests that run the unmodified programs of a
// distribution under `rocev2 run`: rdma-core's, perftest, UCX, OpenMPI,
// libfabric, pyverbs. Each is a cell with a name. The table of all cells is in
// docs/programs.md, and make e2e-programs writes it. The package has no code of
// its own.
package programs
