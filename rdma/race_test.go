//go:build race

package rdma

// The race detector has pools drop what is put into them.
func init() { underRace = true }
