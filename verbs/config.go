package verbs

import (
	"io"
	"time"
)

// Config adjusts a device. The zero value works.
//
// Port, RecvBuffer, SendBuffer, DisableGSO, DisableGRO and Shards describe the
// UDP socket. They have no meaning for OpenLink. Where the port has an owner,
// the device has leased sockets, and the owner bounds their buffers.
type Config struct {
	// Port is the local UDP port. 0 means 4791, the only one that other
	// stacks send to.
	Port uint16

	// RecvBuffer is how many bytes of socket receive buffer to ask for. 0
	// means 16 MiB. The system may grant less: see PortAttr.RecvBuffer.
	RecvBuffer int

	// SendBuffer is how many bytes of socket send buffer to ask for. 0
	// means 4 MiB. The system may grant less: see PortAttr.SendBuffer.
	SendBuffer int

	// DisableGSO sends each packet as a datagram of its own. False means
	// that packets leave in segmentation-offload buffers where the system
	// has them.
	DisableGSO bool

	// DisableGRO receives each packet as a datagram of its own. False means
	// that packets arrive in coalesced buffers where the system has them.
	DisableGRO bool

	// Shards is how many sockets the device has, each with its own lock and
	// receiver; queue pairs are spread over them by their number. It is a
	// power of two. 0 means 1. More pay off when several processors serve
	// many queue pairs.
	Shards int

	// Owner has this process own the port of the address: it leases parts
	// of it to other processes of the user, whose devices stand beside this
	// one. They find it by themselves (see OpenAddr). The port is given
	// back, and the devices of the others fail, when this device is closed
	// or the process ends. It needs Linux. A daemon of the system owns
	// ports with package transport/owner, which says what can be set.
	Owner bool

	// Leased has the device be a part of a port that has an owner. Without
	// an owner opening fails with ErrNoOwner, where it would take the port
	// for itself and keep an owner out that is started again.
	Leased bool

	// Spin is how many times a waiting program polls before it sleeps, at
	// most 2^20. 0 means a default that fits the number of processors; a
	// negative number means never.
	Spin int

	// InitialWindow is how many bytes a queue pair may have in flight at
	// first, requests and the READ responses that it asks for. 0 means 128
	// KiB.
	InitialWindow int

	// MaxWindow is how many bytes a queue pair may have in flight at most,
	// and all queue pairs to one peer together. 0 means 2.25 MiB, or half
	// of the socket's receive buffer if that is less. Towards a peer that
	// is not known to be this software it is about 0.5 MiB at most.
	MaxWindow int

	// MaxWindowPackets is how many packets a queue pair may have in flight
	// at most. 0 means 128 towards a peer that is not known to be this
	// software (Linux does the same), and else 4096, which is how far the
	// peer's reorder buffer reaches.
	MaxWindowPackets int

	// ReadChunk is the largest RDMA READ request in bytes; longer READs go
	// out as several. 0 means 256 KiB, or half of MaxWindow if that is
	// less, and four times as much to native peers nearby while two such
	// requests fit into the window; a negative number means one request for
	// each READ.
	ReadChunk int

	// Congestion chooses congestion control of the queue pairs, by its name
	// and what is different from its parameters. "" and "window" mean the
	// window: see MaxWindow.
	//
	//	static,bytes=120K   a window that stays, of what the path holds
	//	dcqcn               rates by notifications, parameters of the paper
	//	dcqcn-adapter       the same, parameters of NVIDIA's adapters
	//	dcqcn-host          the same, slower, for operating systems
	//	swift,target=1ms    a window that keeps round trips that long
	//	timely,line=1G      rates by how round trips get longer
	//
	// DCQCN (Zhu et al., SIGCOMM 2015) begins at the rate of the port,
	// line; without it 100G. Notifications cut the rate of a queue pair,
	// for its requests and its answers to READs, and it grows back. Packets
	// must be ECN-capable (ConnectConfig.TrafficClass), and switches mark
	// them. Other options are min, the least rate; ai and hai, what the
	// rate grows by; burst, how many bytes may go at once:
	//
	//	dcqcn,line=25G,ai=5M,hai=50M,min=1M,burst=64K
	//
	// Rates are in bits per second with k, M or G, and bytes with K or M.
	// Losses make the window smaller that DCQCN has beside its rate.
	//
	// Swift (Kumar et al., SIGCOMM 2020) and TIMELY (Mittal et al., SIGCOMM
	// 2015) need no marks. Their options are those of cc.SwiftConfig and
	// cc.TimelyConfig; docs/fabric-control.md says what comes of them over
	// sockets. hpcc is for simulated networks, and refused here.
	//
	// UC and UD have no congestion control. QPConfig.Congestion chooses for
	// one queue pair. OpenAddr and OpenLink refuse what they do not know
	// (ErrCongestion).
	Congestion string

	// NotifyInterval is the least time between two congestion notifications
	// (CNPs) that a queue pair sends. 0 means 50 µs as in the paper, or 4
	// µs with "dcqcn-adapter"; a negative number means one for each packet
	// that the network has marked. With "dcqcn" a mark that comes within
	// the time is reported after it, as in the paper.
	NotifyInterval time.Duration

	// NotifyScope says which queue pairs share that time: none with "qp" or
	// ""; with "peer" those that are connected to the same address, except
	// UC; with "port" all of the device. NVIDIA's adapters have it per
	// port.
	NotifyScope string

	// NotifyClass is the traffic class of congestion notifications, 1 to
	// 255. 0 means 192: DSCP 48, as adapters have it, without ECN. -1 means
	// the class of the connection's other packets.
	NotifyClass int

	// MinProbe is how long a native peer must be silent at least,
	// before the oldest packet in flight is sent again without waiting for
	// the local ACK timeout. To other peers nothing is. The time is longer
	// where round trips are, and where the peer's host was seen to pause. 0
	// means 1 ms; a negative number means never.
	MinProbe time.Duration

	// Trace, if it is not nil, gets what the queue pairs of reliable
	// services decide, as a file for a viewer (JSON, in the trace event
	// format of Chrome): what they sent, took for lost and why, windows,
	// rates, timers, states, marks of congestion. ui.perfetto.dev shows it.
	// It is written to on the way of the packets, in pieces of 64 KiB, and
	// complete when the device is closed, which returns its error.
	Trace io.Writer

	// Loopback lets packets between queue pairs of this device pass inside
	// it, as in adapters: they are copied from memory to memory, without
	// socket and ICRC. All else is as between two hosts: rights, RNR,
	// errors, order, timers. False means that they take the link like all
	// others. Then they can be captured, lost by injected faults, and are
	// counted in Stats.Link.
	Loopback bool

	// SharedMemory lets packets to other devices of this host pass through
	// memory that both processes share, if both are this software with this
	// setting, of one user, in one network namespace, on Linux. Two devices
	// of one process share memory, too. The first packets to a peer begin
	// the agreement. Before the two have agreed, and where they cannot,
	// packets take the socket. Device.SharedPeers tells with which peers it
	// has worked. Programs of the other packages (cm, rdma, rdmanet) open
	// such a device, and pass it on where those have a field Device. A
	// capture of the interface does not see what passes through memory, and
	// its ICRC is not computed; Wrap sees all packets. So it is off by
	// default. LinkStats.TxShm and RxShm count what passes so. On a port
	// whose packets are all sealed (Secure) it is an error, also where
	// another process owns the port.
	SharedMemory bool

	// Sealing has the device able to encrypt and authenticate packets of
	// queue pairs that have security associations: see QP.Sealing. Their
	// packets are 40 bytes longer. Those of other queue pairs are as
	// without it. It excludes SharedMemory.
	Sealing bool

	// RekeyPackets is after how many packets that a queue pair has sealed
	// with a key both directions go on with new ones: at most 2^26, and 0
	// for that. A key may seal twice as many (RFC 9001 6.6), until the peer
	// has answered. See Sealing.
	RekeyPackets uint64

	// RekeyAfter is after which time they do, 0: 24 hours. See Sealing.
	RekeyAfter time.Duration

	// Secure has all packets of the device sealed, and takes none in clear.
	// Nil: they go in clear. It has no meaning for OpenLink. Where the port
	// has an owner, the owner decides: then opening fails.
	Secure *Secure

	// Strict has the device behave like an adapter: it refuses what
	// adapters refuse, and records what they punish (Device.Findings,
	// Found). "" and "off" mean no; "on" means all rules but those that are
	// optional; "all" means all. Names of rules with commas between them
	// mean those alone, and "-" before a name takes it out:
	// "on,-no-receive". docs/strict.md and StrictRules have the rules.
	Strict string

	// Profile is the adapter whose limits the device has: "mlx5", "rxe" or
	// "efa". "" means those of this software. With a profile a Strict of ""
	// means "on". Device.Query tells the limits.
	Profile string

	// Found, if not nil, gets the first finding of each rule at once. It is
	// called with locks held, and must call nothing of the device.
	Found func(Finding)

	// Random, if not nil, gives the numbers of queue pairs, the PSNs that
	// they begin with, and keys, which are then the same in each run: for
	// simulations. By default they are such that no peer can guess them.
	// Several goroutines may call it at once.
	Random func() uint32

	// Wrap, if not nil, is called with every link that OpenAddr opens, and
	// what it returns is used in its place: to record, count or disturb
	// packets. A wrapper passes on what it does not do itself, as those of
	// transport/... do. It has packets as they are at the socket: sealed,
	// where Sealing or Secure seals them. Those of a port that has an owner
	// it has before the owner's keys seal them. It has no meaning for
	// OpenLink.
	Wrap func(Link) Link
}
