package fabric

// Config returns how the port is set now, with the defaults filled in.
func (p *Port) Config() PortConfig {
	p.sw.mu.Lock()
	defer p.sw.mu.Unlock()
	return p.cfg
}

// SetConfig changes the port and its cable from now on. Packets that are under
// way arrive as if nothing had changed. Capabilities returns the new buffer
// sizes from now on.
//
//	c := port.Config()
//	c.Delay = 10 * time.Millisecond
//	port.SetConfig(c)
func (p *Port) SetConfig(c PortConfig) {
	c.fill()
	p.change(func() { p.cfg = c })
}

// SetLoss changes the probability, from 0 to 1, that a packet on its way to the
// port is lost: 0 ends losses, 1 loses every packet in that direction. Packets
// from the port suffer the loss of the port that they go to.
func (p *Port) SetLoss(probability float64) {
	p.change(func() { p.cfg.Loss = probability })
}

// Cut cuts the port's cable. What is on it is lost in both directions, and so
// is everything that follows, until Plug. As with a real cable, the two sides
// are not told: Send succeeds, and nothing arrives. The port keeps what it has
// received. A second Cut changes nothing.
func (p *Port) Cut() {
	p.change(func() {
		if !p.cut {
			p.cut = true
			p.cuts++
		}
	})
}

// Plug makes the cable whole again.
func (p *Port) Plug() {
	p.change(func() { p.cut = false })
}

// change calls f when all that was due before has happened.
func (p *Port) change(f func()) {
	s := p.sw
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.runDue(now)
	f()
	s.arm(now)
}
