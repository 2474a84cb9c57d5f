package udaddy

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/link"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// ends are the two ends of a path, and where each finds the other.
type ends struct {
	client, server *side
	toServer       target
	toClient       *verbs.AddressHandle
}

func newEnds(t *testing.T, client, server Config, network ...verbstest.Config) ends {
	t.Helper()
	a, b := verbstest.Devices(t, network...)
	client, err := client.withDefaults(a)
	if err != nil {
		t.Fatal(err)
	}
	if server, err = server.withDefaults(b); err != nil {
		t.Fatal(err)
	}
	var e ends
	if e.client, err = newSide(a, client); err != nil {
		t.Fatal(err)
	}
	if e.server, err = newSide(b, server); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.client.Close)
	t.Cleanup(e.server.Close)
	if err := errors.Join(e.client.QP.Activate(interop.CMQKey), e.server.QP.Activate(interop.CMQKey)); err != nil {
		t.Fatal(err)
	}
	ah, err := e.client.PD.CreateAH(verbs.AddressVector{DGID: b.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	e.toServer = target{ah, e.server.QP.QPN(), interop.CMQKey}
	if e.toClient, err = e.server.PD.CreateAH(verbs.AddressVector{DGID: a.Addr()}); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *ends) run(t *testing.T) (client, server error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if server = e.server.first(t.Context()); server == nil {
			server = e.server.runServer(t.Context(), e.toClient)
		}
	}()
	client = e.client.runClient(t.Context(), e.toServer)
	<-done
	return client, server
}

func TestBothEnds(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"defaults":    {},
		"large":       {Size: 4096, Messages: 30},
		"one message": {Messages: 1, Size: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := newEnds(t, cfg, cfg)
				if client, server := e.run(t); client != nil || server != nil {
					t.Fatalf("client %v, server %v", client, server)
				}
				n := e.client.cfg.Messages
				want := Result{Connections: 1, Sent: n, Received: n, Bytes: uint64(2 * n * e.client.cfg.Size)}
				for _, r := range []Result{e.client.result(), e.server.result()} {
					if r.Elapsed = 0; r != want {
						t.Errorf("%+v, expected %+v", r, want)
					}
				}
			})
		})
	}
}

func TestLossIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Messages: 100}
		e := newEnds(t, cfg, cfg, verbstest.Config{Network: fabric.Config{Seed: 9, Port: fabric.PortConfig{Loss: 0.3}}})
		start := time.Now()
		client, server := e.run(t)
		for who, err := range map[string]error{"client": client, "server": server} {
			if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "of 100 messages came, then nothing for 5s") {
				t.Errorf("the %s ends with %v", who, err)
			}
		}
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

// TestSilentClient ends a path on which nothing comes.
func TestSilentClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEnds(t, Config{}, Config{})
		if err := e.server.first(t.Context()); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "0 of 10 messages came, then nothing for 10s") {
			t.Errorf("the server ends with %v", err)
		}
	})
}

// TestThirdParty sends datagrams to the server that are not the client's: they
// neither count nor take its place.
func TestThirdParty(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEnds(t, Config{}, Config{})
		other, err := link.New(e.client.QP.Device(), link.Config{QP: verbs.QPConfig{Type: verbs.UD}, Memory: 200})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		ah, err := other.PD.CreateAH(verbs.AddressVector{DGID: e.server.QP.Device().Addr()})
		if err := errors.Join(err, other.QP.Activate(interop.CMQKey)); err != nil {
			t.Fatal(err)
		}
		send := func(op verbs.Opcode, imm uint32, n int) {
			wr := verbs.SendWR{Opcode: op, Imm: imm, SGList: []verbs.SGE{other.MR.Slice(0, n)}, AH: ah, RemoteQPN: e.toServer.qpn, RemoteQKey: interop.CMQKey}
			if err := other.QP.PostSend(wr); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		send(verbs.OpSend, 0, 100)           // without a number
		send(verbs.OpSendImm, 1, 100)        // for the management of the host
		send(verbs.OpSendImm, 0xffffff, 100) // for multicast
		e.server.cfg.OnStep = func(s Step) {
			if s == Receiving { // the first message is there
				send(verbs.OpSendImm, uint32(e.client.QP.QPN()), 100)
				send(verbs.OpSendImm, uint32(other.QP.QPN()), 50)
			}
		}
		if client, server := e.run(t); client != nil || server != nil {
			t.Fatalf("client %v, server %v", client, server)
		}
		if e.server.peer != e.client.QP.QPN() || e.server.count.Received != 10 {
			t.Errorf("the server answers %v after %d messages", e.server.peer, e.server.count.Received)
		}
	})
}

func TestOtherSizeIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEnds(t, Config{Size: 50}, Config{})
		if _, server := e.run(t); server == nil || !strings.Contains(server.Error(), "(-S) have 100 bytes here, 50 there") {
			t.Errorf("the server ends with %v", server)
		}
	})
}

func TestBadConfigs(t *testing.T) {
	t.Parallel()
	dev, _ := verbstest.Devices(t)
	for want, c := range map[string]Config{
		"larger than active":    {Size: 4097},
		"number of messages":    {Messages: 1 << 30},
		"number of connections": {Connections: -1},
		"negative":              {LossTimeout: -1},
	} {
		var ce *interop.ConfigError
		if err := c.Check(dev); !errors.As(err, &ce) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, expected %q", c, err, want)
		}
	}
}
