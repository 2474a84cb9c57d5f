package wake

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// enough ticks for the receiver to come back from anywhere.
const enough = 6

// Whatever the order of steps, at most one goroutine owns the receive side, and
// nothing sleeps while there is work: with two programs that wait, or poll and
// then stop, all orders are tried.
func TestAllOrders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		polls   [most]int8
		need    [most]int8
		packets int8
	}{
		{need: [most]int8{1, 1, 0}, packets: 2},
		{need: [most]int8{1, 1, 0}, polls: [most]int8{2, 0, 0}, packets: 2},
		{need: [most]int8{1, 0, 0}, polls: [most]int8{3, 0, 0}, packets: 2},
		{need: [most]int8{2, 0, 0}, packets: 3},
	} {
		first := newModel(c.need, c.polls)
		seen := map[model]bool{first: true}
		for queue := []model{first}; len(queue) > 0; {
			m := queue[len(queue)-1]
			queue = queue[:len(queue)-1]
			if wrong := m.wrong(); wrong != "" {
				t.Fatalf("%+v: %s in %+v", c, wrong, m)
			}
			if later := m; later.settle(enough) != "" {
				t.Fatalf("%+v: %s after %+v", c, later.settle(0), m)
			}
			for _, next := range m.nexts(c.packets) {
				if !seen[next] {
					seen[next] = true
					queue = append(queue, next)
				}
			}
		}
		if len(seen) < 100 {
			t.Errorf("%+v: %d states: the model does nothing", c, len(seen))
		}
	}
}

func newModel(need, polls [most]int8) model {
	m := model{beside: -1, receiver: takes}
	for i := range m.programs {
		p := &m.programs[i]
		if p.need, p.polls = need[i], polls[i]; p.need == 0 {
			p.at = gone
		}
	}
	return m
}

// nexts returns what can be next: a step of any, a tick, a packet.
func (m *model) nexts(packets int8) (list []model) {
	for i := range m.programs {
		if n := *m; n.step(i) {
			list = append(list, n)
		}
		if m.sent < packets && (m.programs[i].need > 0 || m.programs[i].polls > 0) {
			n := *m
			n.link[i]++
			n.sent++
			list = append(list, n)
		}
	}
	for _, now := range []clock.Time{0, clock.Time(time.Hour)} {
		if n := *m; n.stepReceiver(now, false) {
			list = append(list, n)
		}
	}
	if n := *m; m.receiver == ticks && n.stepReceiver(0, true) {
		list = append(list, n)
	}
	return list
}

// Three programs on few processors and on many, by seeds: a processor may be
// taken from any of them for long. Each gets all its completions, in the end
// without another packet.
func TestSeeds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		processors := 1 + rng.IntN(4)
		const packets = 20
		m := newModel([most]int8{100, 100, 100}, [most]int8{int8(rng.IntN(20)), 0, int8(rng.IntN(3))})
		var runs [most + 1]int // turns that each still has its processor for
		for range 3000 {
			on := 0
			for _, n := range runs {
				if n > 0 {
					on++
				}
			}
			i := rng.IntN(most + 1)
			if runs[i] == 0 && on < processors {
				runs[i] = 1 + rng.IntN(30)
			}
			switch {
			case runs[i] == 0: // another has its processor
			case i < most:
				runs[i]--
				if !m.step(i) {
					runs[i] = 0 // it sleeps
				}
			default:
				runs[i]--
				if !m.stepReceiver(clock.Time(rng.Int64N(2)*int64(time.Hour)), rng.IntN(10) == 0) {
					runs[i] = 0
				}
			}
			if m.sent < packets && rng.IntN(20) == 0 {
				m.link[rng.IntN(most)]++
				m.sent++
			}
			if wrong := m.wrong(); wrong != "" {
				t.Fatalf("seed %d: %s in %+v", seed, wrong, m)
			}
		}
		if left := m.settle(enough); left != "" {
			t.Fatalf("seed %d: %s after %+v", seed, left, m)
		}
	}
}

// Sleepers beside an owner that leaves are woken in turn, without a packet for
// any of them: each receives when the one before it has left.
func TestSleepersInTurn(t *testing.T) {
	t.Parallel()
	m := newModel([most]int8{1, 1, 1}, [most]int8{})
	m.receiver = takes + 100 // no receiver
	for range 10 {
		for i := range m.programs {
			m.step(i)
		}
	}
	for i := range m.programs {
		if want := []int8{sleepsInLink, sleeps, sleeps}[i]; m.programs[i].at != want {
			t.Fatalf("program %d is at %d, not %d", i, m.programs[i].at, want)
		}
	}
	m.receiver = takes
	for i := range m.programs {
		m.link[i]++
		if left := m.settle(enough); left != "" || m.programs[i].at != gone {
			t.Fatalf("program %d, which is at %d: %s", i, m.programs[i].at, left)
		}
		for j := i + 1; j < most; j++ {
			if at := m.programs[j].at; at != sleeps && at != sleepsInLink {
				t.Errorf("program %d is awake", j)
			}
		}
	}
}
