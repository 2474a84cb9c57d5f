package mad

import "fmt"

// Reason says why a REJ refuses (IBTA 12.6.7.2).
type Reason uint16

// The reasons.
const (
	ReasonNoQP                     Reason = 1
	ReasonNoEEC                    Reason = 2
	ReasonNoResources              Reason = 3
	ReasonTimeout                  Reason = 4
	ReasonUnsupported              Reason = 5
	ReasonInvalidCommID            Reason = 6
	ReasonInvalidCommInstance      Reason = 7
	ReasonInvalidServiceID         Reason = 8
	ReasonInvalidTransport         Reason = 9
	ReasonStale                    Reason = 10
	ReasonNoRDC                    Reason = 11
	ReasonInvalidGID               Reason = 12
	ReasonInvalidLID               Reason = 13
	ReasonInvalidSL                Reason = 14
	ReasonInvalidTrafficClass      Reason = 15
	ReasonInvalidHopLimit          Reason = 16
	ReasonInvalidPacketRate        Reason = 17
	ReasonInvalidAltGID            Reason = 18
	ReasonInvalidAltLID            Reason = 19
	ReasonInvalidAltSL             Reason = 20
	ReasonInvalidAltTrafficClass   Reason = 21
	ReasonInvalidAltHopLimit       Reason = 22
	ReasonInvalidAltPacketRate     Reason = 23
	ReasonPortCMRedirect           Reason = 24
	ReasonPortRedirect             Reason = 25
	ReasonInvalidMTU               Reason = 26
	ReasonInsufficientResponder    Reason = 27
	ReasonConsumer                 Reason = 28
	ReasonInvalidRNRRetry          Reason = 29
	ReasonDuplicateCommID          Reason = 30
	ReasonInvalidClassVersion      Reason = 31
	ReasonInvalidFlowLabel         Reason = 32
	ReasonInvalidAltFlowLabel      Reason = 33
	ReasonVendorOptionNotSupported Reason = 35
)

var reasons = map[Reason]string{
	ReasonNoQP:                     "no queue pair available",
	ReasonNoEEC:                    "no EE context available",
	ReasonNoResources:              "no resources available",
	ReasonTimeout:                  "timeout",
	ReasonUnsupported:              "unsupported request",
	ReasonInvalidCommID:            "invalid communication ID",
	ReasonInvalidCommInstance:      "invalid communication instance",
	ReasonInvalidServiceID:         "invalid service ID: no program listens there",
	ReasonInvalidTransport:         "invalid transport service type",
	ReasonStale:                    "stale connection",
	ReasonNoRDC:                    "RDC does not exist",
	ReasonInvalidGID:               "primary remote GID rejected",
	ReasonInvalidLID:               "primary remote LID rejected",
	ReasonInvalidSL:                "invalid primary SL",
	ReasonInvalidTrafficClass:      "invalid primary traffic class",
	ReasonInvalidHopLimit:          "invalid primary hop limit",
	ReasonInvalidPacketRate:        "invalid primary packet rate",
	ReasonInvalidAltGID:            "alternate remote GID rejected",
	ReasonInvalidAltLID:            "alternate remote LID rejected",
	ReasonInvalidAltSL:             "invalid alternate SL",
	ReasonInvalidAltTrafficClass:   "invalid alternate traffic class",
	ReasonInvalidAltHopLimit:       "invalid alternate hop limit",
	ReasonInvalidAltPacketRate:     "invalid alternate packet rate",
	ReasonPortCMRedirect:           "port and CM redirection",
	ReasonPortRedirect:             "port redirection",
	ReasonInvalidMTU:               "invalid path MTU",
	ReasonInsufficientResponder:    "insufficient responder resources",
	ReasonConsumer:                 "rejected by the program",
	ReasonInvalidRNRRetry:          "RNR retry count rejected",
	ReasonDuplicateCommID:          "duplicate local communication ID",
	ReasonInvalidClassVersion:      "unsupported class version",
	ReasonInvalidFlowLabel:         "invalid primary flow label",
	ReasonInvalidAltFlowLabel:      "invalid alternate flow label",
	ReasonVendorOptionNotSupported: "vendor option not supported",
}

// String returns what the reason means.
func (r Reason) String() string {
	if s, ok := reasons[r]; ok {
		return s
	}
	return fmt.Sprintf("reason %d", uint16(r))
}

// SIDRStatus is the status of a SIDR_REP (IBTA 12.11.1.2).
type SIDRStatus uint8

// The statuses.
const (
	SIDRSuccess            SIDRStatus = 0
	SIDRUnsupported        SIDRStatus = 1
	SIDRRejected           SIDRStatus = 2
	SIDRNoQP               SIDRStatus = 3
	SIDRRedirect           SIDRStatus = 4
	SIDRUnsupportedVersion SIDRStatus = 5
)

var sidrStatuses = [...]string{
	"success",
	"service ID not supported: no program listens there",
	"rejected by the program",
	"no queue pair available",
	"redirection",
	"class version not supported",
}

// String returns what the status means.
func (s SIDRStatus) String() string {
	if int(s) < len(sidrStatuses) {
		return sidrStatuses[s]
	}
	return fmt.Sprintf("status %d", uint8(s))
}
