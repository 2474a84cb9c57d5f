package qp

import (
	"fmt"
	"strings"

	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Error makes a status an error, which WCError unwraps to: errors.Is(err,
// StatusRetryExcErr). It is the name, as String.
func (s Status) Error() string { return s.String() }

// WCError is the error of a completion without success.
type WCError struct {
	WC WC // the completion
}

// Error says what failed, with which status, and what that means.
func (e *WCError) Error() string { return e.WC.String() }

// Unwrap returns the status.
func (e *WCError) Unwrap() error { return e.WC.Status }

// Err returns nil for a success, else a *WCError: errors.Is(err,
// StatusRetryExcErr) tells the status, errors.As gives the whole completion.
func (c WC) Err() error {
	if c.Status == StatusSuccess {
		return nil
	}
	return &WCError{WC: c}
}

// String says what completed and how, in words.
func (c WC) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v (id %d) on QP %v: %v", c.Opcode, c.ID, c.QPN, c.Status)
	if c.Status != StatusSuccess {
		fmt.Fprintf(&b, " (code %d)", uint8(c.Status))
		for _, words := range []string{c.Explain(), c.Vendor()} {
			if words != "" {
				b.WriteString(": " + words)
			}
		}
		return b.String()
	}
	fmt.Fprintf(&b, ", %d bytes", c.ByteLen)
	if c.WithImm {
		fmt.Fprintf(&b, ", immediate data 0x%08x", c.Imm)
	}
	if c.WithInv {
		fmt.Fprintf(&b, ", key %v invalidated", c.InvalidatedKey)
	}
	return b.String()
}

// statusWords say what a status means to the one who gets it, or where to look.
var statusWords = [numStatuses]string{
	StatusLocLenErr:      "a message is longer than the receive buffer",
	StatusLocQPOpErr:     "the queue pair cannot carry out the request",
	StatusLocProtErr:     "a scatter/gather entry names no memory of this protection domain, or memory without the right",
	StatusWRFlushErr:     "the queue pair was in the error state, into which an earlier failure or Modify took it; reset it and connect anew",
	StatusBadRespErr:     "the peer sent a response that does not fit the request",
	StatusRemInvReqErr:   "the peer refuses the request: path MTU, message size or access rights of the two sides differ, its receive is too short, or an atomic is not on a multiple of 8 bytes",
	StatusRemAccessErr:   "the peer refuses the address, the key or the access",
	StatusRemOpErr:       "the peer could not carry out the request",
	StatusRetryExcErr:    "the peer does not acknowledge: it or its queue pair is gone, not connected or in the error state, or UDP port 4791 between the two is filtered",
	StatusRNRRetryExcErr: "the peer posts no receive buffers",
}

// Explain says in words what the status of the completion means, or where to
// look; nothing for a success or a status that does not occur.
func (c WC) Explain() string {
	if c.Opcode >= WCRecv && (c.Status == StatusRemInvReqErr || c.Status == StatusRemAccessErr || c.Status == StatusRemOpErr) {
		return "the peer's request was refused"
	}
	if c.Status >= numStatuses {
		return ""
	}
	return statusWords[c.Status]
}

// Vendor says in words what VendorErr tells: the NAK that came, or the check of
// a memory access that failed; nothing if it is 0.
func (c WC) Vendor() string {
	switch low := c.VendorErr & 0xff; {
	case c.VendorErr == 0:
		return ""
	case c.VendorErr == VendorNAK|low:
		return fmt.Sprintf("the peer sent %v (vendor error %#x)", rocev2.Syndrome(low), c.VendorErr)
	case c.VendorErr == VendorFault|low:
		return fmt.Sprintf("memory access: %v (vendor error %#x)", memreg.Fault(low).String(), c.VendorErr)
	}
	return fmt.Sprintf("vendor error %#x", c.VendorErr)
}
