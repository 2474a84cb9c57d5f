package secure

import (
	"crypto/tls"
	"fmt"

	"github.com/gosoftroce/rocev2/verbs"
)

// Beside secures a queue pair beside a connection of TLS, over which the two
// sides have told each other their numbers: q is connected, and nothing was
// sent to it or by it. From then on all its packets are sealed, and it takes no
// others. Keys come from the connection of TLS as the package documentation
// has it. Both sides call it for each queue pair before they use it; client
// says which side has dialled.
func Beside(q *verbs.QP, state *tls.ConnectionState, client bool) (verbs.SealVersion, error) {
	c := Conn{QP: q}
	s, err := q.Sealing()
	if err != nil {
		return 0, err
	}
	into, err := c.association(state, s.SPI(0), client)
	if err != nil {
		return 0, err
	}
	from, err := c.association(state, uint32(q.Query().DestQPN), !client)
	if err != nil {
		return 0, err
	}
	for _, do := range []func() error{
		func() error { return s.Accept(into) }, func() error { return s.Seal(from) }, s.OnlySealed,
	} {
		if err := do(); err != nil {
			return 0, fmt.Errorf("secure queue pair %v: %w", q.QPN(), err)
		}
	}
	return into.Version, nil
}

// ForTLS returns a configuration for a connection of TLS that is for Beside:
// TLS 1.3, without tickets.
func ForTLS(config *tls.Config) *tls.Config { return minimal(config) }
