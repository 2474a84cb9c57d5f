//go:build !race

package network

// underRace says that the race detector makes all some ten times slower.
const underRace = false
