package server

import (
	"strings"

	"github.com/gosoftroce/rocev2/verbs"
)

// meaning says what an event or a counter means, and what to do about it. The
// texts of counters are the table "What the counters mean" of
// docs/operations.md too; a test compares the two.
type meaning struct {
	meaning, remedy string
	quiet           bool // nothing went wrong
}

var eventMeanings = map[verbs.Event]meaning{
	verbs.EventCQError:         {meaning: "a completion queue was full, and a completion is lost; the queue pair has ended", remedy: "the program polls too late or made the queue too small"},
	verbs.EventQPFatal:         {meaning: "a queue pair met an error that no completion tells of, and has ended", remedy: "connect again"},
	verbs.EventQPRequestError:  {meaning: "the peer sent a request that is not valid here, and its connection has ended", remedy: "look at the peer: a message longer than the posted receive, an operation that it may not use, or too many READs at once"},
	verbs.EventQPAccessError:   {meaning: "the peer asked for memory that it may not have, and its connection has ended", remedy: "look at the peer: a wrong key, a place outside of the region, or a right that the region does not grant"},
	verbs.EventCommEstablished: {quiet: true},
	verbs.EventSQDrained:       {quiet: true},
	verbs.EventDeviceFatal:     {meaning: "the device has failed: its socket was closed", remedy: "restart the daemon"},
	verbs.EventSRQError:        {meaning: "a shared receive queue lost its protection domain", remedy: "connect again"},
	verbs.EventSRQLimit:        {quiet: true},
	verbs.EventLastWQEReached:  {quiet: true},
	verbs.EventPathMTU:         {meaning: "packets do not fit the way to the peer any more: an MTU there has become smaller", remedy: "connect again with a smaller path MTU, or repair the MTU of the way"},
	verbs.EventGIDChange:       {meaning: "the address of the device was taken from this host, or came back", remedy: "give the host its address back"},
	verbs.EventPortError:       {meaning: "the link receives nothing: its interface is down or has no carrier", remedy: "look at the interface with ip link"},
	verbs.EventPortActive:      {quiet: true},
}

// CounterMeaning explains a counter that shows trouble.
type CounterMeaning struct {
	Counter string `json:"counter"` // of drops: "drop_" and the reason; else as in verbs.QPStats, verbs.LinkStats or verbs.GuardCounters
	Meaning string `json:"meaning"`
	Remedy  string `json:"remedy"`
}

// CounterMeanings explains the counters that stay at zero where all is well.
var CounterMeanings = []CounterMeaning{
	{"retransmits", "packets were sent again: the network or the peer has lost some", "look for full queues and small socket buffers on the way; rocev2 doctor PEER measures the loss"},
	{"timeouts", "the peer did not answer for the whole local ACK timeout", "see whether the peer is alive, and whether a firewall drops UDP port 4791"},
	{"rnr_received", "the peer had no receive posted when a message came", "have the peer post more receives, or earlier"},
	{"rnr_sent", "a message came, and no receive was posted here", "nothing, if it stays rare; the sender tries again"},
	{"nak_seq_sent", "packets of a peer were missing here", "look for loss on the way from the peer"},
	{"nak_seq_received", "packets of this side were missing at a peer", "look for loss on the way to the peer"},
	{"nak_access_sent", "a peer asked for memory that it may not have", "compare the keys, ranges and rights that the peer uses with those of the region"},
	{"nak_access_received", "a peer refused access to its memory", "compare keys, ranges and rights with what the peer has told"},
	{"nak_invalid_sent", "a peer sent requests that are not valid", "look at the peer: messages longer than the receive, or operations that it may not use"},
	{"nak_invalid_received", "a peer took requests of this side as not valid", "messages may be longer than its receives, or it does not know the operation"},
	{"nak_op_sent", "memory could not be reached here, such as a file that was truncated", "look at the file of the region"},
	{"nak_op_received", "a peer could not carry out a request", "look at the log of the peer"},
	{"cq_overflows", "completions were lost because a completion queue was full", "poll more often, or make the queue larger"},
	{"ecn_marked", "switches on the way are congested: they mark packets", "nothing; the senders slow down"},
	{"window_cuts", "this side slowed down because of loss or congestion", "nothing, if rates are good; else look for the congestion"},
	{"rate_cuts", "peers have told this side that its packets meet a queue, and it sends more slowly", "nothing, if rates are good; else look for the congestion"},
	{"rx_bad_icrc", "packets were damaged on the way, or something on the way rewrites them", "look for NAT, for a middlebox that changes the IP header, or for faulty hardware"},
	{"rx_overflow", "the socket's receive buffer was full, so the kernel dropped packets", "allow larger buffers: sysctl net.core.rmem_max"},
	{"rx_malformed", "datagrams that are no RoCEv2 packets, or were fragmented on the way, came to the port", "look for a scanner, or for another program that uses UDP port 4791; fragments mean that the path MTU is larger than the way"},
	{"tx_errors", "the system refused to send packets", "look at routes and firewall: rocev2 doctor PEER says more"},
	{"socket_errors", "a host on the way answered with ICMP errors", "see whether the peer listens on UDP port 4791"},
	{"drop_bad_icrc", "packets came with a wrong ICRC", "look for NAT, for a middlebox that changes the IP header, or for faulty hardware"},
	{"drop_unknown_qpn", "packets came for queue pairs that do not exist: late ones of closed connections, or forged ones", "nothing, if they stop; a peer that crashed sends some for a while"},
	{"drop_peer", "packets came to a queue pair from another address than its peer's", "look for NAT between the hosts, or for a host that forges packets"},
	{"drop_duplicate", "requests came twice: an acknowledgement was late or lost", "nothing, if it stays rare"},
	{"drop_out_of_order", "requests came after a gap", "look for loss or reordering on the way from the peer"},
	{"drop_qkey", "datagrams came with a wrong Q_Key", "give both sides the same Q_Key"},
	{"drop_state", "packets came to a queue pair whose state takes none", "nothing, if it stays rare: the peer went on after an error"},
	{"drop_wrong_source_port", "packets of a peer came from another UDP port than before", "look for NAT, or for a host that forges packets"},
	{"drop_conflict", "two packets came with the same number and different content, so one is forged", "look for a host on this network that forges packets"},
	{"guard_no_keys", "packets to other hosts did not leave: there are no keys with them", "look for the reason in the log (no keys of a peer host) or in /api/v1/devices: a certificate, TCP port 4791, or a host that is not secured"},
	{"guard_clear", "packets came in clear to a device that takes sealed ones alone, and were dropped", "secure the host that they come from, too; else look for a host that forges packets"},
	{"guard_unknown_spi", "sealed packets came with a key that is not known here", "nothing, if it stops within a minute: a host was started again; else look for a host that forges packets"},
	{"guard_wrong_peer", "sealed packets came from another address than the host whose key they have", "look for NAT between the hosts, or for a host that forges packets"},
	{"guard_replayed", "sealed packets came twice", "nothing, if it stays rare: the network may double packets; else look for a host that sends recorded ones again"},
	{"guard_forged", "sealed packets were changed on the way, or are forged", "look for faulty hardware, or for a host on this network that forges packets"},
}

// troubleOf explains a counter, if it shows trouble.
func troubleOf(counter string) (CounterMeaning, bool) {
	for _, m := range CounterMeanings {
		if m.Counter == counter {
			return m, true
		}
	}
	return CounterMeaning{}, false
}

// remedies are found in the text of an error, the first that fits.
var remedies = []struct{ has, meaning, remedy string }{
	{"RNR_RETRY_EXC_ERR", "the peer had no receive posted for too long", "have it post more receives, or earlier"},
	{"RETRY_EXC_ERR", "the peer does not answer any more", "see whether it is alive, and whether a firewall drops UDP port 4791"},
	{"REM_ACCESS_ERR", "the peer refused access to its memory", "compare keys, ranges and rights with what the peer has told"},
	{"REM_INV_REQ_ERR", "the peer took a request as not valid", "messages may be longer than its receives, or it does not know the operation"},
	{"REM_OP_ERR", "the peer could not carry out a request", "look at the log of the peer"},
	{"WR_FLUSH_ERR", "the connection ended while work was outstanding", "look at the first error of that connection"},
	{"no progress", "nothing came from the peer for too long", "see whether both sides run the same test with the same options"},
	{errCutOff.Error(), "the client had not finished when the daemon was told to end", "give clients more time: drain in the configuration"},
	{"closed the control connection", "the client left in the middle", "look at what the client says"},
	{"run different tests", "the options of the two sides differ", "start the client with the options that the message names"},
	{"gave no GID", "the client was started without a GID index", "start it with -g (ping-pong) or -x (perftest): the index of its RoCE v2 GID"},
	{"wants its RDMA traffic at", "the client named another address for RDMA than the one that it connected from", "if that host has both, set any_peer in [targets]; else have it connect from the address of its device"},
	{"targets.clients", "too many clients are here at the same time", "wait, or raise targets.clients in the configuration"},
}

// explain fills in what an error means, as far as its text tells.
func explain(p *Problem) {
	if p.Meaning != "" {
		return
	}
	for _, r := range remedies {
		if strings.Contains(p.What, r.has) {
			p.Meaning, p.Remedy = r.meaning, r.remedy
			return
		}
	}
}
