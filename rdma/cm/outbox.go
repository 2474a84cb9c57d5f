package cm

import "sync"

// outbox is where the events of an ID go.
type outbox struct {
	mu    sync.Mutex // held while an event is put, so that the events follow the ID to another channel
	ch    *EventChannel
	asked *pending // tells of the request that the ID was made for
}

func (o *outbox) channel() *EventChannel {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ch
}

func (o *outbox) deliver(p *pending) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ch.push(p)
}

// migrate has the events of id go to another channel.
func (o *outbox) migrate(id *ID, to *EventChannel) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ch == to {
		return nil
	}
	if err := to.enter(id); err != nil {
		return err
	}
	for _, p := range o.ch.extract(id) {
		to.push(p)
	}
	o.ch = to
	return nil
}

// forgotten reports whether the program has not seen the request that the ID
// was made for, and takes it back. The ID then ends without a word: what the
// peers of a flood have taken back is not kept.
func (o *outbox) forgotten(id *ID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.asked == nil {
		return false
	}
	o.ch.mu.Lock()
	defer o.ch.mu.Unlock()
	if !o.asked.place.In() {
		return false
	}
	o.ch.events.Remove(&o.asked.place)
	delete(o.ch.ids, id)
	return true
}
