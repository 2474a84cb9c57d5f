// Package layering holds the test that keeps the house in order: which package
// may import which, and what the pure packages must stay away from. It has no
// code of its own.
package layering
