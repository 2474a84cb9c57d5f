package agent

// Detach has an established connection end by Release alone, and without a
// word: it is secured, and its messages are not. Duplicates of those that have
// made it are still answered.
func (a *Agent) Detach(id ID) error {
	c, err := a.table.own(id)
	switch {
	case err != nil:
		return err
	case c.state != StateEstablished:
		return &StateError{"detach", c.state}
	}
	a.gate.closeSetup(c)
	a.table.forget(c) // another connection of its queue pair may be forged
	c.detached = true
	return nil
}

// Cut ends what goes over a control connection that has ended itself. The
// event is Unreachable, or TimewaitExit where the connection was over.
func (a *Agent) Cut(path Path) {
	p := a.table.peers[addressesOf(&path)]
	if p == nil || p.only == nil {
		return
	}
	c, e := p.only, Event{Kind: EventUnreachable}
	if c.state == StateTimewait {
		e.Kind = EventTimewaitExit
	}
	a.life.finish(c, e)
}

// Busy reports whether a control connection has its connection: it is for one
// at a time.
func (a *Agent) Busy(path Path) bool { return a.table.peers[addressesOf(&path)] != nil }

// idle is told of a peer that has no connection any more.
func (t *table) idle(p *peer) {
	if p.control != 0 && t.cfg.Idle != nil {
		t.cfg.Idle(p.control)
	}
}
