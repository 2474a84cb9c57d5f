package requester

import "github.com/gosoftroce/rocev2/rocev2"

// credit is the end-to-end flow control of a requester (IBTA 9.7.7.2): messages
// that consume a receive are numbered by SSN and may start up to the limit LSN
// that the peer's last acknowledgement gave. Linux never limits.
type credit struct {
	lsn     rocev2.PSN
	limited bool
	stalled bool // the last poll stopped for lack of credits
}

// update takes the AETH of an acknowledgement: LSN = MSN + credits (IBTA
// 9.7.7.2).
func (c *credit) update(h *rocev2.AETH) {
	n, limited := h.Syndrome.Credits()
	c.limited, c.lsn = limited, h.MSN.Add(n)
}

// allows reports whether the message with this SSN may start.
func (c *credit) allows(ssn rocev2.PSN) bool { return !c.limited || !ssn.After(c.lsn) }
