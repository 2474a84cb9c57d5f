package link

import (
	"github.com/gosoftroce/rocev2/verbs"
)

// The work requests that a link makes.
const (
	RecvID = 1
	SendID = 2
)

// PostRecvs posts n receives, all of them into the first size bytes of the
// memory: the tools do not look at what they receive.
func (l *Link) PostRecvs(n, size int) error {
	if n == 0 {
		return nil
	}
	sg := []verbs.SGE{l.MR.Slice(0, size)}
	list := make([]verbs.RecvWR, n)
	for i := range list {
		list[i] = verbs.RecvWR{ID: RecvID, SGList: sg}
	}
	if l.SRQ != nil {
		return l.SRQ.PostRecv(list...)
	}
	return l.QP.PostRecv(list...)
}

// PostSends posts wr n times, with a completion for each.
func (l *Link) PostSends(n int, wr verbs.SendWR) error {
	wr.ID, wr.Signaled = SendID, true
	for range n {
		if err := l.QP.PostSend(wr); err != nil {
			return err
		}
	}
	return nil
}

// Count is how many requests have completed.
type Count struct{ Sent, Received int }

// Until takes completions until there are as many as want says. handle, if not
// nil, sees each.
func (l *Link) Until(have *Count, want Count, handle func(verbs.WC) error) error {
	for have.Sent < want.Sent || have.Received < want.Received {
		wc, err := l.Next()
		if err != nil {
			return err
		}
		if wc.ID == SendID {
			have.Sent++
		} else {
			have.Received++
		}
		if handle == nil {
			continue
		}
		if err := handle(wc); err != nil {
			return err
		}
	}
	return nil
}
