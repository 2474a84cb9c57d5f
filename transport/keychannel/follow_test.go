package keychannel_test

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/transport/guard"
	"github.com/gosoftroce/rocev2/transport/keychannel"
)

// TestFailedRenewal: handshakes that fail leave the keys as they are, whichever
// side begins them.
func TestFailedRenewal(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	one, two := config(t, ca, testcert.Subject{Addr: addrA.String()}), config(t, ca, testcert.Subject{Addr: addrB.String()})
	expired := config(t, ca, testcert.Subject{Addr: addrA.String(), Expired: true})
	for name, c := range map[string]struct {
		refuse bool
		config *tls.Config
	}{"refused": {true, one}, "expired": {false, expired}} {
		for _, begins := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var refuse atomic.Bool
					n := newNetwork()
					a := n.open(t, addrA, one, nil)
					b := n.open(t, addrB, two, func(k *keychannel.Config) {
						k.Allow = func(netip.Addr, *tls.ConnectionState) (string, error) {
							if refuse.Load() {
								return "", errors.New("not any more")
							}
							return "", nil
						}
					})
					a.Want(addrB, guard.ToSend)
					synctest.Wait()
					agreed(t, a, b, addrA, addrB)
					refuse.Store(c.refuse)
					if err := a.SetTLS(c.config); err != nil {
						t.Fatal(err)
					}
					for range 300 {
						if begins {
							a.Want(addrB, guard.Renew)
						} else {
							b.Want(addrA, guard.Renew)
						}
						time.Sleep(time.Second)
					}
					if n := n.dialled(); n < 5 {
						t.Errorf("%d connections", n)
					}
					talk(t, a, b)
					closeAll(t, a, b)
				})
			})
		}
	}
}

// TestCrossed: both sides begin, and each of them ends the two handshakes in
// another order. The keys of both open packets, until others follow.
func TestCrossed(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	one, two := config(t, ca, testcert.Subject{Addr: addrA.String()}), config(t, ca, testcert.Subject{Addr: addrB.String()})
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		wait := make(chan struct{})
		n := newNetwork()
		a := n.open(t, addrA, one, nil)
		b := n.open(t, addrB, two, func(k *keychannel.Config) {
			k.Allow = func(netip.Addr, *tls.ConnectionState) (string, error) {
				if asked.Add(1) == 1 {
					<-wait
				}
				return "", nil
			}
		})
		a.Want(addrB, guard.ToSend)
		synctest.Wait()
		b.Want(addrA, guard.ToSend)
		synctest.Wait()
		close(wait)
		synctest.Wait()
		agreed(t, a, b, addrA, addrB)
		if n := n.dialled(); n != 2 {
			t.Errorf("%d connections", n)
		}
		talk(t, a, b)
		time.Sleep(5 * keychannel.Overlap)
		talk(t, a, b)
		closeAll(t, a, b)
	})
}

// TestCutOff: an attacker cuts connections off after any number of bytes, of
// either direction. The two sides can talk whatever they have come to.
func TestCutOff(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	one, two := config(t, ca, testcert.Subject{Addr: addrA.String()}), config(t, ca, testcert.Subject{Addr: addrB.String()})
	for _, far := range []bool{false, true} {
		for most := range 8 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var cut atomic.Bool
					n := newNetwork()
					n.wrap = func(c net.Conn, isFar bool) net.Conn {
						if cut.Load() && far == isFar {
							return &cutting{conn: c.(*conn), left: most}
						}
						return c
					}
					a, b := n.open(t, addrA, one, nil), n.open(t, addrB, two, nil)
					a.Want(addrB, guard.ToSend)
					synctest.Wait()
					agreed(t, a, b, addrA, addrB)
					cut.Store(true)
					for range 200 {
						time.Sleep(2 * time.Second)
						a.Want(addrB, guard.Renew)
					}
					time.Sleep(2 * keychannel.Overlap)
					talk(t, a, b)
					closeAll(t, a, b)
				})
			})
		}
	}
}

// cutting is a connection that is closed in place of a write.
type cutting struct {
	*conn
	left int
}

func (c *cutting) Write(b []byte) (int, error) {
	if c.left--; c.left < 0 {
		c.conn.Close()
		return 0, net.ErrClosed
	}
	return c.conn.Write(b)
}
