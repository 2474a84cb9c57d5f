package dissect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Message is a SEND, WRITE, READ, atomic or FLUSH.
type Message struct {
	Number    uint64 // on its side of the connection, from 1
	Operation rocev2.Operation
	First     rocev2.PSN
	Last      rocev2.PSN // the last one seen, or with Whole the last one of all
	Whole     bool       // Last is the end of the message
	Partial   bool       // the capture does not have its beginning
	Length    int64      // in bytes; -1 = not known (yet)
	VA        uint64     // of WRITE, READ and atomics
	RKey      uint32

	Started   time.Duration // offset of its first packet
	Completed time.Duration // offset of the packet that completed it
	Done      bool

	answered rocev2.PSN // of a READ: of the next response
}

// String names the message, such as "#3 WRITE 4096 B".
func (m *Message) String() string {
	name := fmt.Sprintf("#%d %v", m.Number, m.kind())
	if m.Length >= 0 {
		name += fmt.Sprintf(" %d B", m.Length)
	}
	return name
}

// kind is the short name of the operation: a READ, not its request.
func (m *Message) kind() string {
	if m.Operation == rocev2.OpReadRequest {
		return "READ"
	}
	return strings.TrimPrefix(m.Operation.String(), "RDMA_")
}

const (
	minMessages = 16
	maxMessages = 1024 // that a side keeps; older ones are forgotten
	messageSize = 128  // bytes in memory, about

	// maxSpan is how many PSNs what a side keeps may cover: beyond half of
	// all, before and after have no meaning.
	maxSpan = 1 << 22
)

// messages are the latest of a side, in the order of their PSNs.
type messages struct {
	list  []Message // from start on
	start int
	limit int    // of those from start on
	count uint64 // of all
	done  int    // those in front of it, counted from start, are complete
}

func (m *messages) all() []Message { return m.list[m.start:] }

// add takes a new message and returns it. It takes from budget what it needs
// beyond the least.
func (m *messages) add(n Message, budget *int) *Message {
	m.limit = max(m.limit, minMessages)
	if more := m.limit * messageSize; len(m.all()) >= m.limit && m.limit < maxMessages && *budget >= more {
		*budget -= more
		m.limit *= 2
	}
	for len(m.all()) >= m.limit || len(m.all()) > 0 && n.First.Sub(m.list[m.start].First) > maxSpan {
		m.start++
		m.done = max(0, m.done-1)
	}
	if m.start >= m.limit || m.start == len(m.list) {
		m.list = append(m.list[:0], m.list[m.start:]...)
		m.start = 0
	}
	m.count++
	n.Number = m.count
	i := m.behind(n.First)
	m.done = min(m.done, i)
	m.list = slices.Insert(m.list, m.start+i, n)
	return &m.list[m.start+i]
}

// held returns what was taken from the budget.
func (m *messages) held() int { return max(0, m.limit-minMessages) * messageSize }

// It returns how many messages begin at a PSN or before it.
func (m *messages) behind(p rocev2.PSN) int {
	list := m.all()
	low, high := 0, len(list)
	for low < high {
		mid := (low + high) / 2
		if list[mid].First.After(p) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}

// find returns the message that a PSN belongs to, or nil.
func (m *messages) find(p rocev2.PSN) *Message {
	i := m.behind(p)
	if i == 0 {
		return nil
	}
	if f := &m.all()[i-1]; !p.After(f.Last) {
		return f
	}
	return nil
}

// open returns the newest message if it has not ended, or nil.
func (m *messages) open() *Message {
	if n := len(m.list); n > m.start && !m.list[n-1].Whole {
		return &m.list[n-1]
	}
	return nil
}
