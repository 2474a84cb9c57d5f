//go:build !portable

package leases

// All returns every attack.
func All() []Attack {
	return []Attack{
		{Name: "lease-garbage", What: "a process says nonsense on the owner's Unix socket, and passes 200 files with each message",
			Must: "no answer but a refusal", run: (*trial).garbage},
		{Name: "lease-silence", What: "a process connects to the Unix socket again and again, and says nothing",
			Must: "others get leases meanwhile", run: (*trial).silence},
		{Name: "lease-flood", What: "a process takes all leases that there are, drops them, and takes them again",
			Must: "a process that gets none is told why", run: (*trial).takeAll},
		{Name: "lease-lies", What: "a leaseholder tells counters that are not true, without end, and such that cannot be",
			Must: "the daemon tells its leases and metrics, and no negative number; a leaseholder that tells what cannot be loses its lease", run: (*trial).falseCounters},
		{Name: "lease-services", What: "leaseholders reserve and release services without end, and read no answers",
			Must: "nothing more", run: (*trial).reserves},
		{Name: "lease-quota", What: "leaseholders send management datagrams without end, to the network and to each other, and strays that never came",
			Must: "nothing more", run: (*trial).floods},
		{Name: "lease-killed", What: "leaseholders are killed while a peer talks with them",
			Must: "the peer is told", run: (*trial).kills},
		{Name: "lease-stopped", What: "leaseholders are stopped while peers dial them, and go on later",
			Must: "the daemon tells its leases meanwhile; the dials then succeed", run: (*trial).stops},
		{Name: "envelope-forged", What: "anybody sends envelopes (opcode 0xd2) with guessed tokens to every slot, from everywhere",
			Must: "nothing more", run: (*trial).envelopes},
		{Name: "envelope-own", What: "the same from the own address, forged and by a leased socket",
			Must: "nothing more", run: (*trial).ownEnvelopes},
		{Name: "mad-flood", What: "anybody floods queue pair 1 with requests, goodbyes and garbage while leaseholders dial",
			Must: "nothing more", run: func(t *trial) { t.flood(t.anyone, t.mad) }},
		{Name: "mad-own", What: "the same with the own address as the source",
			Must: "nothing more", run: func(t *trial) { t.flood(always(owner), t.mad) }},
		{Name: "slots-idle", What: "anybody sends packets to slots that no process has leased",
			Must: "nothing more", run: (*trial).idle},
		{Name: "slots-leased", What: "anybody sends packets to queue pairs that there are not, in slots that are leased",
			Must: "nothing more", run: (*trial).leased},
	}
}
