package tcp

import (
	"slices"
	"sort"
)

// span is bytes of a stream, from begin up to, not with, end.
type span struct{ begin, end int64 }

// ranges are bytes of a stream, in order, apart from each other.
type ranges []span

// at returns the index of the first span that ends after a position.
func (r ranges) at(pos int64) int {
	return sort.Search(len(r), func(i int) bool { return r[i].end > pos })
}

// add adds bytes, and returns how many were not there.
func (r *ranges) add(s span) (news int64) {
	if s.begin >= s.end {
		return 0
	}
	list := *r
	first := sort.Search(len(list), func(i int) bool { return list[i].end >= s.begin })
	last, had := first, int64(0)
	all := s
	for last < len(list) && list[last].begin <= s.end {
		had += max(min(list[last].end, s.end)-max(list[last].begin, s.begin), 0)
		all.begin, all.end = min(all.begin, list[last].begin), max(all.end, list[last].end)
		last++
	}
	if first < last {
		list[first] = all
		*r = slices.Delete(list, first+1, last)
	} else {
		*r = slices.Insert(list, first, all)
	}
	return s.end - s.begin - had
}

// forget takes away what is below a position.
func (r *ranges) forget(pos int64) {
	n := r.at(pos)
	*r = slices.Delete(*r, 0, n)
	if len(*r) > 0 {
		(*r)[0].begin = max((*r)[0].begin, pos)
	}
}

// below returns how many of the bytes are below a position.
func (r ranges) below(pos int64) (sum int64) {
	for _, s := range r {
		if s.begin >= pos {
			break
		}
		sum += min(s.end, pos) - s.begin
	}
	return sum
}

// gap returns the first bytes that are not there from a position on, up to a
// limit; none, if all are there.
func (r ranges) gap(from, limit int64) span {
	i := r.at(from)
	if i < len(r) && r[i].begin <= from {
		from = r[i].end
		i++
	}
	if i < len(r) {
		limit = min(limit, r[i].begin)
	}
	return span{from, max(limit, from)}
}
