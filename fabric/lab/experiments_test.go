package lab

import (
	"flag"
	"testing"
)

var playExperiments = flag.Bool("experiments", false, "play the experiments that take long (make test-experiments)")

// experiments are statistics of simulated networks. A table in testdata has
// what came out. They take minutes of processor time, all together.
var experiments = map[string]func(t *testing.T){
	"drawings-of-the-manual": drawingsOfTheManual,
	"gaps":                   gaps,
	"hadoop-with-bursts":     hadoopWithBursts,
	"incast":                 incast,
	"laws-under-incast":      lawsUnderIncast,
	"laws-under-load":        lawsUnderLoad,
	"laws-in-turn":           lawsInTurn,
	"loss-over-ecmp":         lossOverECMP,
	"recovery-of-hadoop":     recoveryOfHadoop,
	"recovery-of-storage":    recoveryOfStorage,
	"recovery-of-websearch":  recoveryOfWebSearch,
	"routings-under-load":    routingsUnderLoad,
	"victim":                 victim,
	"websearch":              webSearch,
	"without-pauses":         withoutPauses,
}

// TestExperiments plays them, or those that -run names.
func TestExperiments(t *testing.T) {
	if !*playExperiments {
		t.Skip("experiments are played with -experiments (make test-experiments)")
	}
	for name, play := range experiments {
		t.Run(name, play)
	}
}
