package pingpong

import (
	"fmt"
	"strings"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/verbs"
)

// Service is one of the five programs of rdma-core. The zero value is RC.
type Service uint8

// Services.
const (
	RC  Service = iota // ibv_rc_pingpong
	UC                 // ibv_uc_pingpong
	UD                 // ibv_ud_pingpong
	SRQ                // ibv_srq_pingpong: RC, and many queue pairs share their receives
	XRC                // ibv_xsrq_pingpong
)

// Services lists all of them.
var Services = []Service{RC, UC, UD, SRQ, XRC}

// traits is what makes the programs differ. The numbers are the defaults of the
// originals.
type traits struct {
	name       string // of the -t flag
	tool       string // of rdma-core
	service    interop.Service
	shared     bool // the queue pairs share one receive queue
	size       int
	iterations int
	lanes      int  // queue pairs
	addresses  int  // address messages in each direction
	form       form // of an address message
	end        ending

	serverFirst bool // it is the server that sends first
}

var allTraits = [...]traits{
	RC:  {name: "rc", tool: "ibv_rc_pingpong", service: interop.RC, size: 4096, iterations: 1000, lanes: 1, addresses: 1},
	UC:  {name: "uc", tool: "ibv_uc_pingpong", service: interop.UC, size: 4096, iterations: 1000, lanes: 1, addresses: 1},
	UD:  {name: "ud", tool: "ibv_ud_pingpong", service: interop.UD, size: 1024, iterations: 1000, lanes: 1, addresses: 1},
	SRQ: {name: "srq", tool: "ibv_srq_pingpong", service: interop.RC, shared: true, size: 4096, iterations: 1000, lanes: 16, addresses: MaxQPs},
	XRC: {name: "xrc", tool: "ibv_xsrq_pingpong", service: interop.XRC, size: 4096, iterations: 5, lanes: 1, addresses: 1,
		form: extendedForm, end: endAfterRun, serverFirst: true},
}

// MaxQPs is the largest number of queue pairs, which only SRQ may have. The
// original exchanges that many addresses, however many it needs.
const MaxQPs = 256

// ending says how the control connection ends.
type ending uint8

const (
	endBeforeRun ending = iota // the client says "done" and closes
	endAfterRun                // both sides say "END" when they are through
)

// String returns the name that ParseService takes: "rc".
func (s Service) String() string {
	if int(s) < len(allTraits) {
		return allTraits[s].name
	}
	return fmt.Sprintf("Service(%d)", uint8(s))
}

// Tool returns the name of the program of rdma-core.
func (s Service) Tool() string { return allTraits[s].tool }

// DefaultSize returns the bytes of a message if the user does not say.
func (s Service) DefaultSize() int { return allTraits[s].size }

// DefaultIterations returns the number of messages if the user does not say.
func (s Service) DefaultIterations() int { return allTraits[s].iterations }

// DefaultQPs returns the number of queue pairs if the user does not say.
func (s Service) DefaultQPs() int { return allTraits[s].lanes }

// ParseService finds a service by its name.
func ParseService(name string) (Service, error) {
	for _, s := range Services {
		if strings.EqualFold(name, s.String()) {
			return s, nil
		}
	}
	return RC, fmt.Errorf("there is no ping-pong %q; there are rc, uc, ud, srq and xrc", name)
}

// largest returns the largest message on a port of that MTU: a datagram is one
// packet.
func (t *traits) largest(port verbs.MTU) int {
	if t.service == interop.UD {
		return port.Bytes()
	}
	return MaxSize
}
