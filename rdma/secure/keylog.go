package secure

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/netip"
	"sync"

	"github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/verbs"
)

// keyLog writes the keys of a connection's associations beside those of TLS, if
// the configuration of TLS that the program has given asks for it by its
// KeyLogWriter. Nothing else makes it write.
type keyLog struct{ to io.Writer } // nil: nothing is written

// of takes where the keys of a connection go from its configuration, which it
// returns: a server may choose another one for a client.
func (l *keyLog) of(config *tls.Config) *tls.Config {
	l.take(config)
	if choose := config.GetConfigForClient; choose != nil {
		config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(hello)
			if err == nil && chosen != nil {
				l.take(chosen)
			}
			return chosen, err
		}
	}
	return config
}

// take takes a configuration, which is this connection's own.
func (l *keyLog) take(config *tls.Config) {
	l.to = nil
	if config.KeyLogWriter != nil {
		l.to = lockedWriter{config.KeyLogWriter}
		config.KeyLogWriter = l.to
	}
}

// both writes the keys of both directions of a queue pair.
func (l *keyLog) both(q *verbs.QP, k *keys) error {
	if err := l.write(q.Device().Addr(), &k.into); err != nil {
		return err
	}
	return l.write(q.Query().AV.DGID, &k.from)
}

// write writes the key of an association whose packets go to a receiver. Those
// that follow it are derived from it.
func (l *keyLog) write(receiver netip.Addr, a *verbs.Association) error {
	if l.to == nil {
		return nil
	}
	k := psp.LoggedKey{SPI: a.SPI, Receiver: receiver, Key: a.Key}
	line := k.AppendTo(nil)
	_, err := l.to.Write(line)
	clear(line)
	if err != nil {
		return fmt.Errorf("write a key to the KeyLogWriter: %w", err)
	}
	return nil
}

// writing is held while a line is written: several connections may have the
// same writer, and TLS writes lines to it, too.
var writing sync.Mutex

// lockedWriter writes whole lines, one after the other.
type lockedWriter struct{ io.Writer }

// Format keeps out of what is printed what was written.
func (lockedWriter) Format(s fmt.State, _ rune) { io.WriteString(s, "key log") }

func (w lockedWriter) Write(line []byte) (int, error) {
	writing.Lock()
	defer writing.Unlock()
	return w.Writer.Write(line)
}
