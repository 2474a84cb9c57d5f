package rdmanet

import (
	"fmt"
	"time"
)

// Options adjust a connection. The zero value works.
type Options struct {
	// RecvBuffer is the size of the ring in bytes, which bounds what has
	// come and was not read: 4 KiB to 512 MiB. 0 means 512 KiB. It is
	// rounded up to a multiple of 8 KiB. The peer waits for half of it to
	// be read: a larger one keeps a transfer going where the reader is
	// late, a smaller one stays in the processor's cache.
	RecvBuffer int

	// SendBuffer is how many bytes may be on their way that the peer has
	// not acknowledged: 4 KiB to 512 MiB. 0 means 512 KiB. It is rounded up
	// to a multiple of 4 KiB.
	SendBuffer int

	// Credits is how many messages the peer may have sent that this side
	// has not looked at, 2 to 16384. A Write of the peer is one message for
	// every 128 KiB that it has. 0 means 48. A peer gets some of them at
	// first, and all when it sends.
	Credits int

	// KeepAlive is how long there is no traffic, at most, until the peer is
	// asked for an acknowledgement. It is asked after half of that at the
	// earliest. 0 means one minute, a negative number never.
	KeepAlive time.Duration

	// Linger is how long Close waits for the peer to acknowledge what was
	// written. 0 means 3 s; a negative number means not at all: what is on
	// its way may be lost.
	Linger time.Duration
}

const (
	minBuffer = 4 << 10
	maxBuffer = 512 << 20
	// maxChunk is about how many bytes a message has at most, so that the
	// peer reads the first bytes of a large Write while the others are
	// sent. Each message ends segmentation runs, so it should be some
	// segmentation-offload buffers long.
	maxChunk = 128 << 10
	// immBytes is the length of immediate data.
	immBytes = 4
	// maxView is how many bytes WriteTo writes at once.
	maxView = 64 << 10
	// inline is how many bytes a message carries without a buffer.
	inline = 64
	// sendDepth is how many requests may be on their way: DATA, and the
	// spare ones for what is not.
	sendDepth = 32
	dataDepth = sendDepth - spareSends
	// spareSends are for MaxControl messages, the keepalive, and the last.
	spareSends = 6
	// spareRecvs are receives beyond the credits: for the peer's control
	// messages, and for those that are not posted anew at once.
	spareRecvs = 16
	// firstCredits is how many messages a peer may send at first, for which
	// and for the control messages there are receives. It gets the others
	// when it has sent half of these: many connections never do, and
	// receives take memory.
	firstCredits = 4
	// repostAfter is how many receives are posted anew together.
	repostAfter = 8
)

// withDefaults returns the options as they are used.
func (o Options) withDefaults() (Options, error) {
	for _, v := range []struct {
		name           string
		v              *int
		least, most    int
		normal, grains int
	}{
		{"RecvBuffer", &o.RecvBuffer, minBuffer, maxBuffer, 512 << 10, 8 << 10},
		{"SendBuffer", &o.SendBuffer, minBuffer, maxBuffer, 512 << 10, 4 << 10},
		{"Credits", &o.Credits, 2, 16384, 48, 1},
	} {
		if *v.v == 0 {
			*v.v = v.normal
		}
		if *v.v < v.least || *v.v > v.most {
			return o, fmt.Errorf("rdmanet: Options.%s is %d; %d to %d are possible", v.name, *v.v, v.least, v.most)
		}
		*v.v = (*v.v + v.grains - 1) / v.grains * v.grains
	}
	if o.KeepAlive == 0 {
		o.KeepAlive = time.Minute
	}
	if o.Linger == 0 {
		o.Linger = 3 * time.Second
	}
	return o, nil
}

// firstCredits is how many messages the peer may send at first.
func (o *Options) firstCredits() int { return min(o.Credits, firstCredits) }

// receives is how many receives there are once the peer may send as many as it
// can.
func (o *Options) receives() int { return o.Credits + spareRecvs }
