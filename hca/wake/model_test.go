package wake

import (
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// A model is programs and a receiver as package hca runs them, in steps between
// which the others may do anything. It is comparable, so that all that can be
// reached is looked at once.
type model struct {
	state    State
	memory   Receiver
	link     [most]int8 // packets that lie there, by the program that waits for them
	wakeLink bool       // the sleep in the link is to end
	resume   bool       // the receiver is to wake up
	beside   int8       // the last program that sleeps beside the owner; -1: none
	receiver int8       // where it is
	programs [most]program
	sent     int8 // packets that have come
}

type program struct {
	at        int8
	polls     int8 // left; then it stops
	need      int8 // completions that it still waits for
	has       int8 // completions that are there
	inWait    bool
	followers bool
	token     bool // it is to wake up
}

// most programs.
const most = 3

// Where a program is.
const (
	looks   = iota // for a completion
	waits          // on Waits
	readies        // before Joins
	joins          // on Joins
	checks         // once more, beside the owner
	sleeps         // beside the owner
	parts
	owns   // the owner looks
	blocks // on Blocks
	checksOwn
	sleepsInLink
	wakesUp // receives
	unlocks
	leaves
	gone
	polls
	takesBatch
	unlocksPoll
)

// Where the receiver is.
const (
	takes = 20 + iota
	drains
	blocksOwn
	sleepsOwn
	receives
	decides
	begins
	ticks
	ticked
	returns
	rests
)

// on takes an input.
func (m *model) on(in Input) Act {
	next, act := m.state.On(in)
	m.state = next
	m.wake(act)
	return act
}

func (m *model) wake(act Act) {
	if act&WakeReceiver != 0 {
		m.resume = true
	}
	if act&HandOver != 0 && m.beside >= 0 && m.programs[m.beside].followers {
		m.programs[m.beside].token = true
	}
}

// receive takes all packets from the link.
func (m *model) receive() (n int) {
	for i := range m.programs {
		p := &m.programs[i]
		if m.link[i] == 0 {
			continue
		}
		n += int(m.link[i])
		p.has += m.link[i]
		m.link[i] = 0
		if p.followers {
			p.token = true
		}
		if p.inWait {
			m.wakeLink = true
		}
	}
	return n
}

// packets reports whether some lie in the link.
func (m *model) packets() bool { return m.link != [most]int8{} }

func (m *model) flush() {
	if m.has(Late) {
		m.on(Sent)
	}
}

// step moves program i, and reports whether it could.
func (m *model) step(i int) bool {
	p := &m.programs[i]
	switch p.at {
	case looks:
		switch {
		case p.has > 0:
			p.has--
			if p.need--; p.need == 0 {
				p.at = gone
			}
		case p.polls > 0:
			p.at = polls
		default:
			p.at = waits
		}
	case waits:
		if p.at = readies; m.on(Waits)&Own != 0 {
			p.at = owns
		}
	case readies:
		p.followers, m.beside, p.at = true, int8(i), joins
	case joins:
		if p.at = checks; m.on(Joins)&Own != 0 {
			p.followers, p.at = false, owns
		}
	case checks:
		if p.at = sleeps; p.has > 0 {
			p.at = parts
		}
	case sleeps:
		if !p.token {
			return false
		}
		p.token, p.at = false, parts
	case parts:
		m.on(Parts)
		p.followers, p.at = false, looks
		if m.beside == int8(i) {
			m.beside = -1
		}
	default:
		return m.stepOwner(i, p)
	}
	return true
}

func (m *model) stepOwner(i int, p *program) bool {
	switch p.at {
	case owns:
		m.flush()
		p.inWait, p.at = true, blocks
	case blocks:
		if p.at = checksOwn; m.on(Blocks)&SendFirst != 0 {
			p.at = wakesUp
		}
	case checksOwn:
		if p.at = sleepsInLink; p.has > 0 {
			m.on(Unblocks)
			p.inWait, p.at = false, leaves
		}
	case sleepsInLink:
		if !m.packets() && !m.wakeLink {
			return false
		}
		m.wakeLink, p.at = false, wakesUp
	case wakesUp:
		m.on(Unblocks)
		p.inWait, p.at = false, unlocks
		if m.receive() > 0 && m.has(StandsBy) {
			m.on(Defers)
		}
	case unlocks:
		m.on(Unlocked)
		if p.at = owns; p.has > 0 {
			p.at = leaves
		}
	case leaves:
		m.on(Leaves)
		p.at = looks
	case polls:
		m.on(Polled)
		p.polls--
		p.at = takesBatch
	case takesBatch:
		p.at = looks
		if m.receive() > 0 {
			if m.on(Took)&WakeLink != 0 {
				m.wakeLink = true
			}
			if m.has(StandsBy) {
				m.on(Defers)
			}
			p.at = unlocksPoll
		}
	case unlocksPoll:
		m.on(Unlocked)
		p.at = looks
	case gone:
		return false
	}
	return true
}

// stepReceiver moves the receiver at the time now. It reports whether it could.
// With time passing it need not be woken when it stands by.
func (m *model) stepReceiver(now clock.Time, passing bool) bool {
	switch m.receiver {
	case takes:
		if m.receiver = begins; m.on(Takes)&Own != 0 {
			m.receiver = drains
		}
	case drains:
		n := m.receive()
		m.state = m.memory.Found(m.state, 0, n)
		m.flush()
		m.receiver = blocksOwn
	case blocksOwn:
		m.on(BlocksOwn)
		m.receiver = sleepsOwn
	case sleepsOwn:
		if !m.packets() && !m.wakeLink {
			return false
		}
		m.wakeLink = false
		m.on(UnblocksOwn)
		m.receiver = receives
	case receives:
		m.receiver = decides
		if m.receive() == 0 {
			m.receiver = decides + 20 // with none
		} else {
			m.flush()
		}
	case decides, decides + 20:
		found := 1
		if m.receiver != decides {
			found = 0
		}
		next, act, stand := m.memory.Received(m.state, now, found)
		m.state = next
		m.wake(act)
		if m.receiver = blocksOwn; stand {
			m.receiver = begins
		}
	case begins:
		m.state, _ = m.memory.StandBy(m.state)
		m.receiver = ticks
	case ticks:
		if !m.resume && !passing {
			return false
		}
		m.resume = false
		m.flush()
		m.receiver = ticked
	case ticked:
		switch m.on(Tick) {
		case ComeBack:
			m.receiver = returns
		case Sleep:
			m.receiver = rests
		default:
			m.receiver = ticks
		}
	case returns:
		m.on(Returns)
		m.flush()
		m.receiver = takes
	case rests:
		if !m.resume {
			return false
		}
		m.resume, m.receiver = false, ticks
	}
	return true
}

// wrong says what must never be.
func (m *model) wrong() string {
	owners, inLink := 0, 0
	for i := range m.programs {
		switch p := m.programs[i]; p.at {
		case sleepsInLink, checksOwn:
			inLink++
			owners++
		case owns, blocks, wakesUp, unlocks, leaves:
			owners++
		}
	}
	switch m.receiver {
	case sleepsOwn:
		inLink++
		owners++
	case drains, blocksOwn, receives, decides, decides + 20:
		owners++
	}
	switch {
	case owners > 1 || inLink > 1:
		return fmt.Sprintf("%d owners, %d sleep in the link", owners, inLink)
	case (owners == 1) != m.state.Owned():
		return fmt.Sprintf("%d owners, and the state says %v", owners, m.state.Owned())
	}
	return ""
}

// settle lets the time pass for a number of ticks, and says what is not done
// then: a program has not taken a completion, a packet lies in the link, an
// answer was not sent.
func (m *model) settle(ticks int) string {
	for range ticks {
		m.stepReceiver(clock.Time(time.Hour), true)
		for moved, rounds := true, 0; moved; rounds++ {
			if rounds > 1000 {
				return "it never comes to rest"
			}
			moved = m.stepReceiver(clock.Time(time.Hour), false)
			for i := range m.programs {
				moved = m.step(i) || moved
			}
		}
	}
	for i := range m.programs {
		if p := m.programs[i]; p.has > 0 && p.at != gone {
			return fmt.Sprintf("program %d does not take what is there", i)
		}
	}
	switch {
	case m.packets():
		return "packets lie in the link"
	case m.has(Late):
		return "an answer is not sent"
	}
	return ""
}

func (m *model) has(bits State) bool { return m.state&bits == bits }
