package dissect

import (
	"encoding/json"
	"io"
)

type sideJSON struct {
	From              string   `json:"from"`
	Packets           uint64   `json:"packets"`
	Bytes             uint64   `json:"bytes"`
	Payload           uint64   `json:"payload"`
	Retransmitted     uint64   `json:"retransmitted"`
	Duplicates        uint64   `json:"duplicates"`
	Gaps              uint64   `json:"gaps"`
	Missing           uint64   `json:"missing"`
	OutOfOrder        uint64   `json:"out_of_order"`
	Responses         uint64   `json:"responses"`
	ResponseBytes     uint64   `json:"response_bytes"`
	ResponsePayload   uint64   `json:"response_payload"`
	ResponsesRepeated uint64   `json:"responses_repeated"`
	ResponseGaps      uint64   `json:"response_gaps"`
	Acks              uint64   `json:"acks"`
	DuplicateAcks     uint64   `json:"duplicate_acks"`
	Unseen            uint64   `json:"unseen"`
	NAKSequence       uint64   `json:"nak_sequence"`
	NAKErrors         uint64   `json:"nak_errors"`
	RNRs              uint64   `json:"rnr"`
	Messages          uint64   `json:"messages"`
	Completed         uint64   `json:"completed"`
	RTTs              uint64   `json:"rtt_samples"`
	RTT               *rttJSON `json:"rtt,omitempty"`
}

type rttJSON struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	Max  float64 `json:"max"`
}

type endJSON struct {
	Addr string  `json:"addr"`
	QPN  *uint32 `json:"qp,omitempty"`
}

type connectionJSON struct {
	ID         int        `json:"connection"`
	Service    string     `json:"service"`
	A          endJSON    `json:"a"`
	B          endJSON    `json:"b"`
	MTU        int        `json:"mtu,omitempty"`
	State      string     `json:"state,omitempty"`
	Purpose    string     `json:"purpose,omitempty"`
	First      float64    `json:"first"`
	Last       float64    `json:"last"`
	Management uint64     `json:"management"`
	CNPs       uint64     `json:"cnps"`
	Marked     uint64     `json:"ecn_marked"`
	BadICRC    uint64     `json:"bad_icrc"`
	Malformed  uint64     `json:"malformed"`
	Requests   []sideJSON `json:"requests"`

	Sealed []sealedJSON `json:"sealed,omitempty"`
}

type opcodeJSON struct {
	Opcode        string `json:"opcode"`
	Packets       uint64 `json:"packets"`
	Bytes         uint64 `json:"bytes"`
	Payload       uint64 `json:"payload"`
	Retransmitted uint64 `json:"retransmitted"`
	BadICRC       uint64 `json:"bad_icrc"`
	Malformed     uint64 `json:"malformed"`
}

func sideOf(from string, c *Counters) sideJSON {
	s := sideJSON{
		From: from, Packets: c.Packets, Bytes: c.Bytes, Payload: c.Payload, Retransmitted: c.Retransmitted,
		Duplicates: c.Duplicates, Gaps: c.Gaps, Missing: c.Missing, OutOfOrder: c.OutOfOrder,
		Responses: c.Responses, ResponseBytes: c.ResponseBytes, ResponsePayload: c.ResponsePayload,
		ResponsesRepeated: c.Repeated, ResponseGaps: c.ResponseGaps, Acks: c.Acks, DuplicateAcks: c.DuplicateAcks,
		Unseen: c.Unseen, NAKSequence: c.NAKSequence, NAKErrors: c.NAKErrors, RNRs: c.RNRs,
		Messages: c.Messages, Completed: c.Completed, RTTs: c.RTTs,
	}
	if c.RTTs > 0 {
		s.RTT = &rttJSON{c.RTTMin.Seconds(), c.RTT().Seconds(), c.RTTMax.Seconds()}
	}
	return s
}

func endOf(e Endpoint) endJSON {
	j := endJSON{Addr: e.Addr.String()}
	if e.Known {
		n := uint32(e.QPN)
		j.QPN = &n
	}
	return j
}

// connectionsJSON returns the connections for JSON.
func connectionsJSON(s *Stats, f *Flows) []connectionJSON {
	list := []connectionJSON{}
	for _, c := range s.connections(f) {
		j := connectionJSON{
			ID: c.ID, Service: c.Service.String(), A: endOf(c.A), B: endOf(c.B), MTU: c.MTU,
			State: c.State.String(), Purpose: c.Purpose, First: c.First.Seconds(), Last: c.Last.Seconds(),
			Management: c.Management, CNPs: c.CNPs, Marked: c.Marked, BadICRC: c.BadICRC, Malformed: c.Malformed,
			Requests: []sideJSON{}, Sealed: sealedSides(c),
		}
		for i := range c.Requests {
			if s := &c.Requests[i].Counters; s.Packets+s.Responses > 0 {
				j.Requests = append(j.Requests, sideOf(c.End(i).Addr.String(), s))
			}
		}
		list = append(list, j)
	}
	return list
}

// WriteStatsJSON writes what WriteStats writes, as one JSON object. Times are
// in seconds.
func WriteStatsJSON(w io.Writer, s *Stats, f *Flows) error {
	opcodes := []opcodeJSON{}
	for _, o := range s.Opcodes() {
		opcodes = append(opcodes, opcodeJSON{o.Opcode.String(), o.Packets, o.Bytes, o.Payload, o.Retransmitted, o.BadICRC, o.Other})
	}
	forgotten := f.Forgotten()
	all := map[string]any{
		"packets": s.Packets, "bytes": s.Bytes, "duration": s.Duration().Seconds(),
		"icrc":      map[string]uint64{"good": s.Good, "bad": s.Bad, "unknown": s.Unknown},
		"malformed": s.Malformed, "ecn_marked": s.Marked, "offloaded": s.Offloaded,
		"opcodes": opcodes, "connections": connectionsJSON(s, f),
		"forgotten": map[string]any{"connections": forgotten.Connections, "requests": sideOf("", &forgotten.Counters)},
	}
	if s.Sealed.Packets > 0 {
		all["sealed"] = s.Sealed.json()
	}
	return json.NewEncoder(w).Encode(all)
}

// WriteConnectionsJSON writes what WriteConnections lists, one JSON object in a
// line.
func WriteConnectionsJSON(w io.Writer, s *Stats, f *Flows) error {
	e := json.NewEncoder(w)
	for _, c := range connectionsJSON(s, f) {
		if err := e.Encode(c); err != nil {
			return err
		}
	}
	return nil
}
