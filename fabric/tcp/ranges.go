package tcp

import "sort"

// span is bytes of a stream, from begin up to, not with, end.
type span struct{ begin, end int64 }

// ranges are bytes of a stream, in order, apart from each other. There may be
// as many as segments in a window, so what is done at either end takes no time
// for those in between.
type ranges struct {
	room  []span // the spans are those from head on
	head  int
	total int64 // bytes
}

func (r *ranges) len() int { return len(r.room) - r.head }

// get returns a span, by its place.
func (r *ranges) get(i int) span { return r.room[r.head+i] }

// from returns the place of the first span for which f is true, as it is for
// all after it.
func (r *ranges) from(f func(span) bool) int {
	return sort.Search(r.len(), func(i int) bool { return f(r.get(i)) })
}

// at returns the place of the first span that ends after a position.
func (r *ranges) at(pos int64) int { return r.from(func(s span) bool { return s.end > pos }) }

// add adds bytes, and returns how many were not there.
func (r *ranges) add(s span) (news int64) {
	if s.begin >= s.end {
		return 0
	}
	first := r.from(func(o span) bool { return o.end >= s.begin })
	last, had := first, int64(0)
	all := s
	for ; last < r.len() && r.get(last).begin <= s.end; last++ {
		o := r.get(last)
		had += max(min(o.end, s.end)-max(o.begin, s.begin), 0)
		all.begin, all.end = min(all.begin, o.begin), max(all.end, o.end)
	}
	if first == last {
		r.insert(first)
	} else {
		r.remove(first+1, last)
	}
	r.room[r.head+first] = all
	r.total += s.end - s.begin - had
	return s.end - s.begin - had
}

// insert makes room for a span.
func (r *ranges) insert(i int) {
	if r.head > 0 && i < r.len()/2 {
		r.head--
		copy(r.room[r.head:], r.room[r.head+1:r.head+1+i])
		return
	}
	r.room = append(r.room, span{})
	copy(r.room[r.head+i+1:], r.room[r.head+i:])
}

// remove takes spans away, by moving those that are fewer.
func (r *ranges) remove(i, j int) {
	if i < r.len()-j {
		copy(r.room[r.head+j-i:], r.room[r.head:r.head+i])
		r.head += j - i
	} else {
		r.room = r.room[:r.head+i+copy(r.room[r.head+i:], r.room[r.head+j:])]
	}
	if r.head > 64 && r.head > len(r.room)/2 {
		r.room = r.room[:copy(r.room, r.room[r.head:])]
		r.head = 0
	}
}

// forget takes away what is below a position, and returns how many bytes that
// were.
func (r *ranges) forget(pos int64) (gone int64) {
	n := r.at(pos)
	for i := range n {
		gone += r.get(i).end - r.get(i).begin
	}
	r.remove(0, n)
	if r.len() > 0 {
		first := &r.room[r.head]
		gone += max(pos-first.begin, 0)
		first.begin = max(first.begin, pos)
	}
	r.total -= gone
	return gone
}

// within returns how many of the bytes are between two positions.
func (r *ranges) within(from, to int64) (sum int64) {
	for i := r.at(from); i < r.len() && r.get(i).begin < to; i++ {
		s := r.get(i)
		sum += min(s.end, to) - max(s.begin, from)
	}
	return sum
}

// above returns how many of the bytes are from a position on.
func (r *ranges) above(pos int64) (sum int64) {
	for i := r.len() - 1; i >= 0 && r.get(i).end > pos; i-- {
		sum += r.get(i).end - max(r.get(i).begin, pos)
	}
	return sum
}

// gap returns the first bytes that are not there from a position on, up to a
// limit; none, if all are there.
func (r *ranges) gap(from, limit int64) span {
	i := r.at(from)
	if i < r.len() && r.get(i).begin <= from {
		from = r.get(i).end
		i++
	}
	if i < r.len() {
		limit = min(limit, r.get(i).begin)
	}
	return span{from, max(limit, from)}
}
