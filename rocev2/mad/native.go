package mad

// Vendor is the vendor ID by which this software knows itself in an [ECE]. It
// is not one of those that IEEE assigns: the bit for local administration is
// set.
const Vendor = 0x526f43

// Options of Vendor.
const (
	// OptionNative: the side is this software, at a device of its own.
	OptionNative = 1
	// OptionLessMTU in a REQ: a REP may say a smaller path MTU.
	OptionLessMTU = 2
)

// Native is what this software says of itself.
var Native = ECE{VendorID: Vendor, Options: OptionNative | OptionLessMTU}
