package engine

import "github.com/gosoftroce/rocev2/ib"

// Fail moves every queue pair of an engine to ERR, where its requests complete
// with WR_FLUSH_ERR: the device has failed, and nothing is sent any more.
func Fail(e *Engine) {
	var all []*QP
	e.table.each(func(q *QP) { all = append(all, q) })
	for _, q := range all {
		// One that is in RESET stays: it has nothing.
		_ = e.Modify(q, &ib.Attr{State: ib.StateErr}, ib.AttrState)
	}
}
