package interop

import (
	"fmt"
	"strings"
)

// Service is the transport service of a test. The zero value is RC.
type Service uint8

// Transport services.
const (
	RC  Service = iota // reliable connection
	UC                 // unreliable connection: what is lost stays lost
	UD                 // unreliable datagrams, of one packet each
	XRC                // extended reliable connection: receives belong to a domain
)

// Services lists all of them.
var Services = []Service{RC, UC, UD, XRC}

var serviceNames = [...]string{RC: "RC", UC: "UC", UD: "UD", XRC: "XRC"}

// String returns the name: "RC".
func (s Service) String() string {
	if int(s) < len(serviceNames) {
		return serviceNames[s]
	}
	return fmt.Sprintf("Service(%d)", uint8(s))
}

// Valid reports whether s is one of Services.
func (s Service) Valid() bool { return int(s) < len(serviceNames) }

// Reliable reports whether the service repeats what is lost.
func (s Service) Reliable() bool { return s != UC && s != UD }

// ParseService finds a service by its name, in capitals or not.
func ParseService(name string) (Service, error) {
	for _, s := range Services {
		if strings.EqualFold(name, s.String()) {
			return s, nil
		}
	}
	return RC, fmt.Errorf("there is no transport service %q; there are RC, UC, UD and XRC", name)
}

// QKey is the Q_Key of the datagram tests of rdma-core and perftest.
const QKey = 0x11111111

// CMQKey is the Q_Key of the connection manager's datagrams (RDMA_UDP_QKEY of
// rdma_cm): udaddy and mckey use it.
const CMQKey = 0x01234567
