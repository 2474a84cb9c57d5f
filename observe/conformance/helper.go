package conformance

import _ "embed"

// Helper is the source, in C, of a target for every device that libibverbs
// knows.
//
//go:embed helper/target.c
var Helper string
