//go:build !linux

package grid

// usage is not known on this system.
type usage struct{}

func usageNow() usage { return usage{} }

func (usage) others(usage) float64 { return 0 }
