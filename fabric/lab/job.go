package lab

import (
	"cmp"
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/adapter"
	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/traffic"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
)

// job is ranks on hosts that send each other messages. A message goes as a
// WRITE with immediate data, by which the receiver knows it, over each of the
// queue pairs of the tenant a part. Parts of the network run at the same time,
// so what a rank has is changed at its host alone.
type job struct {
	r     *run
	t     *tenant
	hosts []int                  // of each rank
	conns map[int64][]connection // by the ranks; only looked up
	ranks []jobRank
	flow  *Flow                         // the whole, as one flow
	waits func(rank int, h held) string // what a rank that is not done waits for
	cause func(rank int) int            // which rank is the cause that one waits, or itself; nil: not known
}

// jobRank is what a job has at the host of a rank.
type jobRank struct {
	got   map[uint32]int    // by message: parts that have arrived
	waits map[uint32]func() // by message: what goes on when it has arrived
	over  bool              // it has nothing more to do
	ended event.Time        // since when
}

func (r *run) newJob(t *tenant, hosts []int) *job {
	j := &job{r: r, t: t, hosts: hosts, conns: map[int64][]connection{}, ranks: make([]jobRank, len(hosts))}
	for i := range j.ranks {
		j.ranks[i] = jobRank{got: map[uint32]int{}, waits: map[uint32]func(){}}
	}
	return j
}

// begin counts the job as a flow, from its first host to its last one.
func (j *job) begin() {
	j.r.flows = append(j.r.flows, j.flow)
	j.r.jobs = append(j.r.jobs, j)
}

func pairKey(from, to int) int64 { return int64(from)<<32 | int64(to) }

// connect makes the connections from one rank to another one, if they are not
// there. A rank cannot make them later: it would do so at another host, too.
func (j *job) connect(from, to int) error {
	key := pairKey(from, to)
	if j.conns[key] != nil {
		return nil
	}
	for range j.t.pairs {
		if err := j.r.keep(); err != nil {
			return err
		}
		x, y, err := j.r.a.Connect(j.hosts[from], j.hosts[to], j.t.connection(j.r, j.hosts[from], j.hosts[to]))
		if err != nil {
			return err
		}
		y.Received = func(m adapter.Message) { j.received(to, m.Imm) }
		j.conns[key] = append(j.conns[key], connection{x: x, y: y})
	}
	return nil
}

// reach says which ranks have no way to each other.
func (j *job) reach(ranks ...int) error {
	hosts := make([]int, len(ranks))
	for i, rank := range ranks {
		hosts[i] = j.hosts[rank]
	}
	return j.r.ways.between(hosts...)
}

// received notes a part of a message, and has go on what waits for it.
func (j *job) received(rank int, message uint32) {
	at := &j.ranks[rank]
	if at.got[message]++; at.got[message] < j.t.pairs {
		return
	}
	if f := at.waits[message]; f != nil {
		delete(at.waits, message)
		delete(at.got, message)
		f()
	}
}

// arrived reports whether a message has arrived, and forgets it then. Else f is
// called when it has.
func (j *job) arrived(rank int, message uint32, f func()) bool {
	at := &j.ranks[rank]
	if at.got[message] == j.t.pairs {
		delete(at.got, message)
		return true
	}
	at.waits[message] = f
	return false
}

// send sends a message, and calls done when all of it is acknowledged.
func (j *job) send(from, to int, bytes int64, message uint32, done func()) {
	conns := j.conns[pairKey(from, to)]
	n, left := int64(len(conns)), len(conns)
	for i := range conns {
		c, i := &conns[i], int64(i)
		j.r.post(j.hosts[from], c, adapter.Request{Op: ib.OpWriteImm, Bytes: uint32(bytes*(i+1)/n - bytes*i/n), Imm: message, Done: func(m adapter.Completion) {
			if m.Status != ib.StatusSuccess {
				j.r.fail(j.hosts[from], fmt.Errorf("a message from rank %d to rank %d: %v", from, to, m.Status))
			}
			j.r.drain(j.hosts[from], c)
			if left--; left == 0 {
				done()
			}
		}})
	}
}

// after calls f at the host of a rank when it has computed for that long.
func (j *job) after(rank int, took Time, f func()) {
	h, err := j.r.a.Host(j.hosts[rank])
	if err != nil {
		j.r.fail(j.hosts[rank], err)
		return
	}
	h.At(h.Now()+event.Time(took), f)
}

// end notes that a rank has nothing more to do.
func (j *job) end(rank int) {
	j.ranks[rank].over, j.ranks[rank].ended = true, j.r.net.TimeOf(j.hosts[rank])
}

// settle reports whether all ranks are done, and notes when they were.
func (j *job) settle() bool {
	last := event.Time(0)
	for i := range j.ranks {
		if !j.ranks[i].over {
			return false
		}
		last = max(last, j.ranks[i].ended)
	}
	j.flow.End = Time(last)
	j.r.open--
	return true
}

// where says of the first rank that is not done, or of that which it waits for
// in the end, what that waits for.
func (j *job) where(h held) string {
	open, first := 0, -1
	for rank := range j.ranks {
		if !j.ranks[rank].over {
			if open++; first < 0 {
				first = rank
			}
		}
	}
	if j.cause != nil {
		first = j.cause(first)
	}
	return fmt.Sprintf("%d of %d ranks are not done; rank %d %s", open, len(j.ranks), first, j.waits(first, h))
}

// silent says of messages from one rank to another, of which nothing is in the
// network, what their host waits for; nothing if there are none.
func (j *job) silent(from, to int) string {
	flight := 0
	for _, c := range j.conns[pairKey(from, to)] {
		flight += qp.FlowOf(c.x.Core()).InFlight
	}
	if flight == 0 {
		return ""
	}
	return fmt.Sprintf("nothing of it is in the network: host %d waits for answers about %v", j.hosts[from], Bytes(flight))
}

// step is a collective under way at a rank: it begins the next round when what
// it receives in one has arrived. With inTurn it does so when what it sends is
// acknowledged, in rounds where a rank does not both send and receive.
type step struct {
	j       *job
	inTurn  bool
	plan    traffic.Collective
	members []int  // the ranks of the job that take part; nil: all
	me      int    // among them
	first   uint32 // the number of the message of round 0
	done    func() // called when nothing is to be sent or waited for any more

	round, sent int
}

// rank returns the rank of the job that a member is.
func (s *step) rank(member int) int {
	if s.members == nil {
		return member
	}
	return s.members[member]
}

// enter has the rank do what its round begins with, and go on as far as nothing
// is to be waited for.
func (s *step) enter() {
	for ; s.round < s.plan.Rounds(); s.round++ {
		k := s.plan.Step(s.me, s.round)
		if k.To >= 0 {
			s.sent++
			s.j.send(s.rank(s.me), s.rank(int(k.To)), k.Send.Bytes, s.first+uint32(s.round), func() {
				if s.sent--; s.inTurn && s.sent == 0 && s.round < s.plan.Rounds() {
					s.next()
					return
				}
				s.over()
			})
			if s.inTurn {
				return
			}
		}
		if k.From >= 0 && !s.j.arrived(s.rank(s.me), s.first+uint32(s.round), s.next) {
			return
		}
	}
	s.over()
}

// next begins the next round.
func (s *step) next() {
	s.round++
	s.enter()
}

// over calls done when all is done.
func (s *step) over() {
	if s.round != s.plan.Rounds() || s.sent > 0 {
		return
	}
	s.round++ // once
	s.done()
}

// waits says what the rank waits for.
func (s *step) waits(h held) string {
	if s.round >= s.plan.Rounds() {
		return fmt.Sprintf("waits for the acknowledgement of %d messages", s.sent)
	}
	from := s.plan.Step(s.me, s.round).From
	if from < 0 || s.inTurn && s.sent > 0 {
		return fmt.Sprintf("is in round %d", s.round)
	}
	text := fmt.Sprintf("waits in round %d for rank %d", s.round, s.rank(int(from)))
	sender, me := s.rank(int(from)), s.rank(s.me)
	if at := cmp.Or(s.j.r.where(h, s.j.hosts[sender], s.j.hosts[me]), s.j.silent(sender, me)); at != "" {
		text += ": " + at
	}
	return text
}
