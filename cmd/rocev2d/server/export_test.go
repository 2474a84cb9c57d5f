package server

// The tests run a short series of rstream: the one that the original runs moves
// gigabytes.
func init() {
	streamConfig.Size, streamConfig.Count, streamConfig.Iterations = 4096, 10, 10
}
