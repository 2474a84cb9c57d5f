//go:build race

package lab

func init() { underRace = true }
