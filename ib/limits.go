package ib

// Limits of a device. They bound what one program can ask for, not what the
// wire could carry.
const (
	MaxQP       = 1 << 20 // queue pairs
	MaxCQ       = 1 << 20 // completion queues
	MaxMR       = 1 << 24 // memory regions
	MaxPD       = 1 << 20 // protection domains
	MaxMW       = 1 << 22 // memory windows, and as many fast registration regions
	MaxAH       = 1 << 20 // address handles
	MaxSRQ      = 1 << 20 // shared receive queues
	MaxXRCD     = 1 << 20 // XRC domains
	MaxSRQWR    = 1 << 20 // entries of a shared receive queue
	MaxGroup    = 1 << 13 // multicast groups
	MaxAttach   = 1 << 19 // queue pairs that are attached to groups
	MaxWR       = 1 << 17 // entries of one send or receive queue
	MaxSGE      = 32      // entries of one scatter/gather list
	MaxCQE      = 1 << 22 // entries of one completion queue
	MaxInline   = 4096    // bytes carried in a work request
	MaxRdAtomic = 128     // outstanding READs and atomics of one queue pair, either side
	MaxMessage  = 1 << 31 // bytes of one message (IBTA 9.7.4.1.6)
)

// Limits are those of a device. The names are those of ibv_device_attr.
type Limits struct {
	QP, CQ, MR, PD, MW, SRQ int    // objects
	WR, SRQWR               int    // entries of a send or receive queue, of a shared receive queue
	SGE, ReadSGE, SRQSGE    int    // entries of a scatter/gather list: of sends and receives, of a READ, of a shared receive queue
	CQE                     int    // entries of a completion queue
	Inline                  int    // bytes carried in a work request
	MRSize                  uint64 // bytes of a memory region
	RdAtomic                int    // outstanding READs and atomics of a queue pair, either side
}

// OwnLimits are those of this software.
var OwnLimits = Limits{
	QP: MaxQP, CQ: MaxCQ, MR: MaxMR, PD: MaxPD, MW: MaxMW, SRQ: MaxSRQ,
	WR: MaxWR, SRQWR: MaxSRQWR, SGE: MaxSGE, ReadSGE: MaxSGE, SRQSGE: MaxSGE, CQE: MaxCQE, Inline: MaxInline,
	MRSize: 1<<63 - 1, RdAtomic: MaxRdAtomic,
}

// Within returns l with the numbers of other where they are smaller. 0 in other
// is no limit.
func (l Limits) Within(other Limits) Limits {
	for _, p := range []struct{ of, most *int }{
		{&l.QP, &other.QP}, {&l.CQ, &other.CQ}, {&l.MR, &other.MR}, {&l.PD, &other.PD}, {&l.MW, &other.MW}, {&l.SRQ, &other.SRQ},
		{&l.WR, &other.WR}, {&l.SRQWR, &other.SRQWR}, {&l.SGE, &other.SGE}, {&l.ReadSGE, &other.ReadSGE}, {&l.SRQSGE, &other.SRQSGE},
		{&l.CQE, &other.CQE}, {&l.Inline, &other.Inline}, {&l.RdAtomic, &other.RdAtomic},
	} {
		if *p.most > 0 {
			*p.of = min(*p.of, *p.most)
		}
	}
	if other.MRSize > 0 {
		l.MRSize = min(l.MRSize, other.MRSize)
	}
	return l
}
