// Package attack attacks live devices of this module and judges what they do.
//
// Every Attack is a value: what is sent, what must hold, and a function that
// does it against a lab of its own. A lab has a victim, the peer of the
// connection under attack, and a third host with which the victim has an
// innocent connection. What counts is not the time that something takes but
// whether connections survive, whether data is the sender's, how many packets
// the victim answers with, and how much memory it holds. The goodput of the
// innocent neighbour is measured in turns without and with the attack, and
// reported as a ratio.
//
// Labs stand on UDP sockets of the loopback network, where forged packets leave
// through a raw socket if the process may open one, and else enter the victim's
// link above its socket (see Wire); or on a simulated network, inside a
// testing/synctest bubble, where time is virtual and goodput can be judged too.
// Whatever seals packets is above that. A simulated network has no TCP, so the
// attacks on secured devices do not run there.
//
// Blind measures, at the state machines themselves, how many packets an
// attacker who sees no traffic needs: it tries a forged packet on a fresh
// connection at every distance from the expected PSN that may matter, and at
// samples of the rest, and extrapolates to the space of 2^24 PSNs.
//
// The command is cmd/roceattack; docs/threat-model.md says how to use it. What
// is not attacked here: the control connections of the tools, and what needs to
// see the victim's traffic, but for secured connections and devices: their
// attackers have all of it (Secured, Guarded).
package attack
