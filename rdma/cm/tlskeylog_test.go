package cm_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// TestKeyLog: the key log of either side has the keys of the control connection
// and of the program's, and of all that follow them: each sealed packet opens.
func TestKeyLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecuredNet(t, fabric.Config{})
		logs := [2]*bytes.Buffer{{}, {}}
		n.dial.KeyLogWriter, n.listen.KeyLogWriter = logs[0], logs[1]
		l, addr := n.server.listen(cm.ListenConfig{TLS: n.listen})
		got := n.server.serve(l, cm.AcceptConfig{})
		c, err := cm.Dial(n.client.context(), n.client.qp(verbs.RC), addr, cm.DialConfig{TLS: n.dial})
		must(t, err)
		s := <-got
		must(t, s.err)
		for range 3 {
			sealing, err := c.QP().Sealing()
			must(t, err)
			sealing.Rekey()
			n.echoOnce(c, s.conn)
		}
		must(t, c.Disconnect(n.client.context()))
		time.Sleep(5 * time.Second)
		for i, cable := range n.cables {
			packets, receiver := cable.Take(), []string{"192.0.2.2", "192.0.2.1"}[i]
			for of, log := range logs {
				keys := loggedKeys(t, log.String(), receiver)
				if len(keys) != 2 {
					t.Errorf("log %d has %d keys for packets to %s, want one of the control connection and one of the program's", of, len(keys), receiver)
				}
				secrets := 0
				for _, p := range packets {
					if !transport.IsSealed(p) {
						continue
					}
					h, _, err := psp.Parse(p)
					must(t, err)
					r := keys[psp.Number(h.SPI)]
					if r == nil {
						t.Fatalf("log %d has no key for SPI %#x at %s", of, h.SPI, receiver)
					}
					_, plain, err := r.Open(nil, p)
					if err != nil {
						t.Fatalf("log %d, SPI %#x at %s: %v", of, h.SPI, receiver, err)
					}
					if bytes.Contains(plain, []byte(secretText)) {
						secrets++
					}
				}
				if secrets != 3 {
					t.Errorf("log %d: %d packets to %s have the secret", of, secrets, receiver)
				}
			}
		}
	})
}

// loggedKeys are those of a log for packets to a receiver, by the number of
// their SPI.
func loggedKeys(t *testing.T, log, receiver string) map[uint32]*psp.Reader {
	t.Helper()
	keys := map[uint32]*psp.Reader{}
	for line := range strings.Lines(log) {
		k, ours, err := psp.ParseKeyLog([]byte(strings.TrimSuffix(line, "\n")))
		must(t, err)
		if !ours || k.Receiver.String() != receiver {
			continue
		}
		r, err := psp.NewReader(verbs.SealGCM128, k.SPI, k.Key)
		must(t, err)
		keys[psp.Number(k.SPI)] = r
	}
	return keys
}
