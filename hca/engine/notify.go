package engine

import (
	"cmp"
	"math"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/transport"
)

// noticeGate is one that queue pairs of this shard share. Each shard has its
// part of what the port may send.
func (c *Config) noticeGate() qp.NoticeGate {
	every := min(cmp.Or(c.NotifyInterval, qp.DefaultNotifyInterval), math.MaxInt32) // the longest that a gate can have
	return qp.NewNoticeGate(every * time.Duration(c.OwnShards))
}

// noticePath returns the path of congestion notifications to the peer of q,
// which is that of its packets but for the traffic class.
func noticePath(c *Config, known *paths, q *QP) *transport.Path {
	path := q.path
	class := c.notifyClass(path.TrafficClass)
	switch {
	case class == path.TrafficClass:
		return path
	case q.peer == nil:
		return known.find(&ib.AddressVector{DGID: path.Dst, SrcPort: path.SrcPort, TrafficClass: class,
			HopLimit: path.HopLimit, FlowLabel: path.FlowLabel})
	}
	return q.peer.path(c.Addr, transport.Path{
		Dst:          path.Dst,
		TrafficClass: class,
		HopLimit:     path.HopLimit,
		FlowLabel:    path.FlowLabel,
		SrcPort:      path.SrcPort,
		SPI:          path.SPI,
	})
}

// maxNotices is how many packets may wait beside the queue pairs for a
// notification to join them: otherwise it stays in its queue pair, which has at
// most one.
const maxNotices = 4096

// notice, where there are classes, has a congestion notification of q go by
// itself, if it is of another class than what else q sends: that may be paused,
// just because of the congestion. Else it goes with the turn of q.
func (f *finals) notice(q *QP) {
	if !q.core.Notices().Due() || q.path == nil || q.local || len(f.packets) >= maxNotices {
		return
	}
	path := noticePath(&f.cfg, &f.paths, q)
	p := finalPacket{path: path, class: f.cfg.class(path.TrafficClass)}
	if p.class == q.class {
		return
	}
	if p.n = q.core.PollNotice(p.data[:]); p.n > 0 {
		f.packets = append(f.packets, p)
	}
}
