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
