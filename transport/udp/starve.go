package udp

import "time"

// How often and for how long Send waits while the queue of a device is full, of
// which it hears no more. That it lasts becomes an error, not a hang.
const (
	maxStarved  = 200
	starvePause = 500 * time.Microsecond
)
