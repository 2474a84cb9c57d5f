package server

// Targets returns all targets that there are.
func Targets() []Target { return nil }
