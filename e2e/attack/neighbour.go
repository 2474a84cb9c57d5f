package attack

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

const (
	pumpBytes = 32 << 10 // of one WRITE
	pumpDepth = 8        // WRITEs outstanding
)

// pace is what one direction of a connection moved.
type pace struct {
	bytes int
	took  time.Duration
}

func (p *pace) add(q pace) { p.bytes += q.bytes; p.took += q.took }

func (p pace) rate() float64 { return float64(p.bytes) / max(p.took.Seconds(), 1e-9) }

// pump writes from a to b until it has moved s.Bytes, and for s.Turn.
func pump(ctx context.Context, s Scale, a, b *end) (pace, error) {
	ctx, cancel := context.WithTimeout(ctx, giveUpAfter)
	defer cancel()
	half := a.mr.Len() / 2
	src := a.mr.Bytes()[:pumpBytes]
	for i := range src {
		src[i] = byte(i>>8) ^ byte(i)*7 + 1
	}
	post := func(n int) error {
		for range n {
			err := a.qp.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Signaled: true,
				SGList: []verbs.SGE{a.mr.Slice(0, pumpBytes)}, Remote: b.mr.RemoteAt(half)})
			if err != nil {
				return err
			}
		}
		return nil
	}
	start, done, posted := time.Now(), 0, pumpDepth
	if err := post(pumpDepth); err != nil {
		return pace{}, err
	}
	var wc [pumpDepth]verbs.WC
	for done < posted {
		n, err := a.scq.Wait(ctx, wc[:])
		if err != nil {
			return pace{}, fmt.Errorf("after %d bytes: %w", done*pumpBytes, err)
		}
		for _, c := range wc[:n] {
			if c.Status != verbs.StatusSuccess {
				return pace{}, fmt.Errorf("after %d bytes: %v", done*pumpBytes, c.Status)
			}
		}
		done += n
		if done*pumpBytes < s.Bytes || time.Since(start) < s.Turn {
			if err := post(n); err != nil {
				return pace{}, err
			}
			posted += n
		}
	}
	took := time.Since(start)
	if !bytes.Equal(src, b.mr.Bytes()[half:half+pumpBytes]) {
		return pace{}, fmt.Errorf("what was written is not what has arrived")
	}
	return pace{done * pumpBytes, took}, nil
}

// turn moves data in both directions of c, and adds what it came to to sum.
func (c *conn) turn(ctx context.Context, s Scale, sum *[2]pace) error {
	type outcome struct {
		i   int
		p   pace
		err error
	}
	out := make(chan outcome, 2)
	for i, d := range [2][2]*end{{c.a, c.b}, {c.b, c.a}} {
		go func() {
			p, err := pump(ctx, s, d[0], d[1])
			out <- outcome{i, p, err}
		}()
	}
	var first error
	for range 2 {
		o := <-out
		sum[o.i].add(o.p)
		if o.err != nil && first == nil {
			first = fmt.Errorf("%s: %w", [2]string{"to the victim", "from the victim"}[o.i], o.err)
		}
	}
	return first
}

// compare measures the goodput of c in turns without and with the attack that
// begin starts and its result ends. It reports the ratio of the direction that
// suffers more.
func (t *Trial) compare(c *conn, begin func() (stop func())) {
	if t.Rounds == 0 {
		return
	}
	var warm, quiet, under [2]pace
	if err := c.turn(t.lab.ctx, t.Scale, &warm); err != nil {
		t.broken("the neighbour without an attack, %v", err)
		return
	}
	for range t.Rounds {
		if err := c.turn(t.lab.ctx, t.Scale, &quiet); err != nil {
			t.broken("the neighbour between two attacks, %v", err)
			return
		}
		stop := begin()
		err := c.turn(t.lab.ctx, t.Scale, &under)
		stop()
		if err != nil {
			t.broken("the neighbour during the attack, %v", err)
			return
		}
	}
	ratio := min(under[0].rate()/quiet[0].rate(), under[1].rate()/quiet[1].rate())
	t.result.Goodput = &ratio
	if t.lab.net.virtual && ratio < t.attack.Goodput {
		t.broken("the neighbour keeps %.3f of its goodput, less than %.2f", ratio, t.attack.Goodput)
	}
}

// neighbour is an innocent connection of the victim, to a host that has nothing
// to do with the attack.
func (l *lab) neighbour() *conn { return l.connect(l.other, l.victim, endConfig{}) }

// healthy notes a connection that does not work any more, in either direction.
func (t *Trial) healthy(c *conn, n int) bool {
	for _, d := range []struct {
		what     string
		from, to *end
	}{{"to the victim", c.a, c.b}, {"from the victim", c.b, c.a}} {
		if err := t.lab.stream(d.from, d.to, n); err != nil {
			t.broken("the connection under attack, %s: %v", d.what, err)
			return false
		}
	}
	return true
}

// floodPause is the virtual time between two packets of a flood, which costs
// none there: 100,000 packets/s, about what sockets take.
const floodPause = 10 * time.Microsecond

// pace holds a flood up in virtual time, which would else stand still.
func (t *Trial) pace() {
	if t.lab.net.virtual {
		time.Sleep(floodPause)
	}
}

// flood begins to call shot again and again.
func flood(shot func(i int)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ctx.Err() == nil; i++ {
			shot(i)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}
