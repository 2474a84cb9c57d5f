//go:build linux && !portable

package udp

import (
	"math/rand/v2"
	"testing"
	"time"
)

// machine has receives that cost some ns for each byte, by way, with noise.
type machine struct {
	rng   *rand.Rand
	now   time.Duration
	asked int // for the time
	cost  [2]float64
	can   bool // something can be placed
	used  [2]int
}

func (m *machine) clock() time.Duration { m.asked++; return m.now }

func (m *machine) run(c *choice, receives int) {
	bytes := 0
	for range receives {
		way, cost := 0, m.cost[0]
		if c.next(bytes, m.clock) {
			way, cost = 1, m.cost[1]
			c.placed(m.can)
		}
		m.used[way]++
		bytes = 60000 + m.rng.IntN(3)*60000
		cost *= 0.9 + 0.2*m.rng.Float64()
		if m.rng.IntN(50) == 0 {
			cost *= 20 // another process has the processor
		}
		m.now += time.Duration(cost * float64(bytes))
	}
}

// The cheaper way is taken nearly always, also when it has become another one.
func TestChoiceLearns(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		m := &machine{rng: rand.New(rand.NewPCG(seed, 0)), can: true, now: 1}
		c := &choice{}
		for _, cost := range [][2]float64{{0.5, 0.4}, {0.4, 0.5}, {0.5, 0.5}, {0.5, 0.3}} {
			m.cost = cost
			m.run(c, 3*maxHold)
			m.used, m.asked = [2]int{}, 0
			m.run(c, 4*maxHold)
			best := 0
			if cost[1] < cost[0] {
				best = 1
			}
			if cost[0] != cost[1] && m.used[best] < 30*m.used[1-best] {
				t.Errorf("seed %d, costs %v: %v receives into buffers and places", seed, cost, m.used)
			}
			if m.asked > 4*maxHold/10 {
				t.Errorf("seed %d: the time was asked for %d times", seed, m.asked)
			}
		}
	}
}

// Where nothing can be placed it is tried in trials alone, even if that seems
// to be cheap; and not for long where it was possible before.
func TestChoiceInVain(t *testing.T) {
	t.Parallel()
	m := &machine{rng: rand.New(rand.NewPCG(1, 0)), cost: [2]float64{0.5, 0.3}, now: 1}
	c := &choice{}
	m.run(c, 20*maxHold)
	if m.used[1] > m.used[0]/40 {
		t.Errorf("%v receives into buffers and places, though nothing can be placed", m.used)
	}
	m.can = true
	m.run(c, 4*maxHold)
	for c.hold < minHold/2 || !c.places {
		m.run(c, 1)
	}
	m.can, m.used = false, [2]int{}
	m.run(c, minHold/2)
	if m.used[1] != choiceVain {
		t.Errorf("%d receives into places in vain, want %d", m.used[1], choiceVain)
	}
}
