// Package chakra reads execution traces of MLCommons Chakra, as ASTRA-sim plays
// them: what a rank of a machine learning job computes and communicates, with
// what depends on what.
//
// A trace is a file for each rank. It is a row of protobuf messages, each with
// its length in front (schema/protobuf/et_def.proto of mlcommons/chakra): a
// GlobalMetadata, then a Node for each operation. A file may be compressed by
// gzip. What is read of a node is what a network needs: its kind, dependencies,
// duration, and of communication the kind, size, peers, tag and group.
//
// The package is pure, and takes files from strangers: they are bounded by
// Limits. An error says at which byte of which trace, and of which node.
package chakra

import "fmt"

// Kind is what a node does.
type Kind uint8

const (
	Other      Kind = iota // takes no time: metadata, and nodes that are not valid
	Compute                // takes Node.Micros: computing, and loads and stores
	Send                   // of Node.Bytes to the rank Node.Dst
	Recv                   // from the rank Node.Src
	Collective             // of Node.Group
)

// CollectiveKind is a collective operation, with the numbers of the schema.
type CollectiveKind uint8

const (
	AllReduce CollectiveKind = iota
	Reduce
	AllGather
	Gather
	Scatter
	Broadcast
	AllToAll
	ReduceScatter
	ReduceScatterBlock
	Barrier
	numCollectives
)

var collectiveNames = [numCollectives]string{"ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER", "BROADCAST", "ALL_TO_ALL", "REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK", "BARRIER"}

// String returns the name of the schema.
func (k CollectiveKind) String() string {
	if k < numCollectives {
		return collectiveNames[k]
	}
	return fmt.Sprintf("collective %d", uint8(k))
}

// Node is an operation of a rank.
type Node struct {
	ID     uint64
	Name   string
	Kind   Kind
	Deps   []int32 // nodes that must be over before, by their index in Trace.Nodes
	Micros uint64  // of Compute
	CPU    bool    // of Compute: the processor computes, not the accelerator

	// Of communication. Of a Send or a Recv Src or Dst is -1 where the
	// trace does not say it: it is the rank itself then.
	Bytes      uint64 // of a message, or what a rank has at the beginning of a Collective
	Src, Dst   int32
	Tag        uint32
	Collective CollectiveKind
	Root       int32  // of those that have one, a rank; 0 where it is not said
	Group      string // name of the ranks that take part; "": all
	Some       bool   // involved_dim leaves out a dimension of the ranks
}

// Trace is what a rank does.
type Trace struct {
	Version string // of the schema
	Nodes   []Node // in the order of the file
	// Groups are those that the trace describes (nodes of process groups of
	// PyTorch): the ranks of each name. One without ranks is all.
	Groups []Group
}

// Group is ranks that take part in collectives.
type Group struct {
	Name  string
	Ranks []int32
}

// Limits bound what is read. What is 0 has its default.
type Limits struct {
	Bytes int64 // of all traces together, when they are not compressed; 0: 256 MiB
	Nodes int   // of all traces together; 0: 2^20
}

const (
	mostBytes = 256 << 20
	mostNodes = 1 << 20
	mostDeps  = 8 // of a node, in the mean over a trace
)

func (l Limits) withDefaults() Limits {
	if l.Bytes == 0 {
		l.Bytes = mostBytes
	}
	if l.Nodes == 0 {
		l.Nodes = mostNodes
	}
	return l
}
