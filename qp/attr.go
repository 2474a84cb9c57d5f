package qp

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// checkAttr checks the selected attributes' values and returns the first one
// that is wrong.
func checkAttr(a *ib.Attr, mask ib.AttrMask) (bad ib.AttrMask, why string) {
	checks := [...]struct {
		attr ib.AttrMask
		ok   bool
		why  string
	}{
		{ib.AttrState, a.State < ib.NumStates, "no such state"},
		{ib.AttrAccess, a.Access&^accessMask == 0, "unknown access right"},
		{ib.AttrPKeyIndex, a.PKeyIndex == 0, "the P_Key table has one entry, index 0"},
		{ib.AttrPort, a.Port == 1, "the device has one port, number 1"},
		{ib.AttrAV, a.AV.DGID.IsValid() && !a.AV.DGID.IsUnspecified(), "the destination address is not set"},
		{ib.AttrAV, a.AV.SrcPort == 0 || a.AV.SrcPort >= ib.MinSrcPort, "the source port is neither 0 nor from 49152 to 65535"},
		{ib.AttrPathMTU, a.PathMTU.Valid(), ""}, // its Err says why
		{ib.AttrTimeout, a.Timeout <= 31, "larger than 31"},
		{ib.AttrRetryCount, a.RetryCount <= 7, "larger than 7"},
		{ib.AttrRNRRetry, a.RNRRetry <= 7, "larger than 7"},
		{ib.AttrMaxRdAtomic, a.MaxRdAtomic <= ib.MaxRdAtomic, "larger than 128"},
		{ib.AttrAltPath, false, "there is no path migration on RoCE: the queue pair has one path"},
		{ib.AttrPathMigState, a.PathMigState == ib.MigMigrated, a.PathMigState.String() + ": there is no path migration on RoCE, only MIGRATED"},
		{ib.AttrMinRNRTimer, a.MinRNRTimer <= 31, "larger than 31"},
		{ib.AttrMaxDestRdAtomic, a.MaxDestRdAtomic <= ib.MaxRdAtomic, "larger than 128"},
		{ib.AttrDestQPN, a.DestQPN <= rocev2.QPNMask, "not a 24-bit number"},
		{ib.AttrDestQPN, a.DestQPN != 0 && a.DestQPN != rocev2.MulticastQPN, "no connected queue pair has this number"},
	}
	for _, c := range &checks {
		if mask&c.attr != 0 && !c.ok {
			if c.attr == ib.AttrPathMTU {
				c.why = a.PathMTU.Err().Error()
			}
			return c.attr, c.why
		}
	}
	return 0, ""
}

// accessMask is what ACCESS_FLAGS may hold: the hints too, which mean nothing
// here. Only the remote rights have a meaning for a queue pair.
const accessMask = ib.AccessMask

// assignAttr copies the selected attributes from b to a.
func assignAttr(a, b *ib.Attr, mask ib.AttrMask) {
	set(mask, ib.AttrAccess, &a.Access, b.Access)
	set(mask, ib.AttrPKeyIndex, &a.PKeyIndex, b.PKeyIndex)
	set(mask, ib.AttrPort, &a.Port, b.Port)
	set(mask, ib.AttrQKey, &a.QKey, b.QKey)
	set(mask, ib.AttrAV, &a.AV, b.AV)
	set(mask, ib.AttrPathMTU, &a.PathMTU, b.PathMTU)
	set(mask, ib.AttrTimeout, &a.Timeout, b.Timeout)
	set(mask, ib.AttrRetryCount, &a.RetryCount, b.RetryCount)
	set(mask, ib.AttrRNRRetry, &a.RNRRetry, b.RNRRetry)
	set(mask, ib.AttrRQPSN, &a.RQPSN, b.RQPSN&rocev2.PSNMask)
	set(mask, ib.AttrSQPSN, &a.SQPSN, b.SQPSN&rocev2.PSNMask)
	set(mask, ib.AttrMaxRdAtomic, &a.MaxRdAtomic, b.MaxRdAtomic)
	set(mask, ib.AttrMaxDestRdAtomic, &a.MaxDestRdAtomic, b.MaxDestRdAtomic)
	set(mask, ib.AttrMinRNRTimer, &a.MinRNRTimer, b.MinRNRTimer)
	set(mask, ib.AttrDestQPN, &a.DestQPN, b.DestQPN)
	set(mask, ib.AttrPathMigState, &a.PathMigState, b.PathMigState)
	set(mask, ib.AttrRateLimit, &a.RateLimit, b.RateLimit)
	set(mask, ib.AttrRateLimit, &a.RateBurst, b.RateBurst)
}

func set[T any](mask, attr ib.AttrMask, dst *T, v T) {
	if mask&attr != 0 {
		*dst = v
	}
}
