package conformance

import (
	"slices"
	"strings"

	"github.com/gosoftroce/rocev2/observe/conformance/stage"
)

// deviation is one that peers of a kind are known for.
type deviation struct {
	rules string // IDs, separated by blanks
	kind  string
	came  string // part of what comes then; "" is anything
	why   string
}

// Those of Linux were seen in 6.1 and 6.12, where nothing else is said.
var deviations = []deviation{
	{"send/too-long", stage.LinuxRXE, "NAK remote operational error", "Linux takes a receive that is too small for an operational error"},
	{"send/invalidate-refused", stage.LinuxRXE, "ACK", "Linux acknowledges a SEND whose invalidation fails, and ends its own side"},
	{"psn/stale", stage.LinuxRXE, "ACK psn=0xffffff", "Linux acknowledges PSN 0xffffff before it has executed anything"},
	{"psn/gap-again", stage.LinuxRXE, "nothing", "Linux is silent after one NAK until the gap is closed: a second loss costs the requester a timeout"},
	{"duplicate/atomic-forgotten", stage.LinuxRXE, "nothing", "Linux drops a duplicate atomic whose result it has forgotten"},
	{"duplicate/read-twice", stage.LinuxRXE, "nothing", "Linux forgets the start of a READ that it has repeated from a later place"},
	{"duplicate/read-zero", stage.LinuxRXE, "nothing", "Linux 6.12 never repeats the response to an empty READ"},
	{"duplicate/read-zero", stage.LinuxRXE, "NAK remote access error", "Linux 6.1 checks the key of an empty READ that comes again"},
	{"duplicate/read-after-empty", stage.LinuxRXE, "NAK remote access error", "Linux 6.12 forgets the key of a READ when an empty request comes after it"},
	{"duplicate/flush", stage.LinuxRXE, "nothing", "Linux keeps no PSN of a FLUSH, so it drops a duplicate"},
	{"flush/global", stage.LinuxRXE, "nothing", "Linux computes the ICRC of FLUSH over its headers twice, and drops what is sealed as the standard has it"},
	{"length/first-whole", stage.LinuxRXE, "nothing", "Linux 6.1 takes a FIRST that is shorter than the path MTU if it has all of the WRITE"},
	{"length/middle-short", stage.LinuxRXE, "nothing", "Linux 6.1 does not compare the payloads of SENDs with the path MTU"},
	{"length/last-empty length/only-long", stage.LinuxRXE, "ACK", "Linux 6.1 does not compare the payloads of SENDs with the path MTU"},
	{"length/write-less", stage.LinuxRXE, "ACK", "Linux compares the payload of a packet with what is left of the WRITE, but not whether the message ends there"},
	{"length/beyond-2g", stage.LinuxRXE, "NAK remote access error", "Linux 6.1 knows no limit of the length, and finds that the region is shorter"},
	{"refused/again refused/again-read", stage.LinuxRXE, "nothing", "Linux is silent after a NAK that ends its side: if the NAK is lost, the requester sees timeouts"},
	{"requester/ack-future requester/read-plain-ack", stage.LinuxRXE, "SUCCESS", "Linux completes what an acknowledgement names, whether it was sent and whether data has come"},
	{"requester/read-syndrome", stage.LinuxRXE, "SUCCESS", "Linux completes the READ with success, and ends the queue pair"},
	{"requester/read-short requester/read-opcode", stage.LinuxRXE, "no completion", "Linux stops at a READ response that does not fit: no repetition, no completion"},
	{"retry/seven", stage.LinuxRXE, "RC_RDMA_WRITE_ONLY", "Linux takes a retry count of 7 for endless"},
	{"uc/lost-middle uc/write-cut", stage.LinuxRXE, "no completion", "Linux loses the message after one that was cut off, and after a WRITE all that follow"},
	{"ud/too-long", stage.LinuxRXE, "LOC_QP_OP_ERR", "Linux 6.1 ends a queue pair that gets a datagram longer than its receive"},
}

// lookUp asks whether a failure is a deviation that is known of this kind of
// peer.
func (r *Result) lookUp(t Target) {
	for _, d := range deviations {
		if d.kind == t.Behaves() && strings.Contains(r.Came, d.came) && slices.Contains(strings.Fields(d.rules), r.ID) {
			r.Verdict, r.Why = Known, d.why
			return
		}
	}
}
