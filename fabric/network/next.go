package network

import "github.com/gosoftroce/rocev2/fabric/event"

// Next returns when the next event is due, for callers that run a network step
// by step beside another clock; event.Never if nothing is pending.
func (n *Network) Next() Time {
	n.parts.together("Next")
	at := event.Never
	for _, a := range n.parts.all {
		at = min(at, a.q.First())
	}
	if script, ok := n.scripts.Min(); ok {
		at = min(at, script)
	}
	return at
}
