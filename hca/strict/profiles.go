package strict

import (
	"fmt"
	"math"
	"strings"

	"github.com/gosoftroce/rocev2/ib"
)

// Profile is an adapter as it is sold.
type Profile struct {
	Name   string
	What   string // what it is
	Source string // where the limits are from
	Limits ib.Limits
}

// Profiles are those that there are. A limit of 0 is that of this software.
var Profiles = []Profile{
	{
		Name:   "mlx5",
		What:   "NVIDIA ConnectX-4 and later",
		Source: "`ibv_devinfo -vv` of a ConnectX-6 (vendor part 4123, firmware 20.37.1700) as users have published it; inline: ofiwg/libfabric#3790, RC on a ConnectX-4",
		Limits: ib.Limits{QP: 131072, WR: 32768, SGE: 30, ReadSGE: 30, Inline: 988, CQ: 1 << 24, CQE: 4194303, MR: 1 << 24, MRSize: math.MaxUint64,
			PD: 1 << 23, SRQ: 1 << 23, SRQWR: 32767, SRQSGE: 31, RdAtomic: 16},
	},
	{
		Name:   "rxe",
		What:   "Linux Soft-RoCE",
		Source: "`ibv_devinfo -v` and `ibv_create_qp` on Linux 6.1 and 6.12",
		Limits: ib.Limits{QP: 1048560, WR: 1 << 20, SGE: 32, ReadSGE: 32, Inline: 512, CQE: 32767, MR: 524287, MW: 524287, MRSize: math.MaxUint64,
			SRQWR: 1 << 20, SRQSGE: 27, RdAtomic: 128},
	},
	{
		Name:   "efa",
		What:   "limits as small as those of the Elastic Fabric Adapter; queue pairs stay what they are (an EFA has SRD and UD only)",
		Source: "rdma-core `efadv_query_device(3)` names them; inline: ofiwg/libfabric#12858, the regular send queue entry has 32 bytes; one entry for a READ: linux-rdma/rdma-core#613. The other numbers are of that order, and a device tells its own",
		Limits: ib.Limits{WR: 4096, SGE: 2, ReadSGE: 1, Inline: 32, CQE: 65535, MR: 1 << 18, MRSize: 1 << 40, SRQSGE: 2, RdAtomic: 16},
	},
}

// ProfileNamed returns the profile with a name.
func ProfileNamed(name string) (*Profile, error) {
	var names []string
	for i := range Profiles {
		if Profiles[i].Name == name {
			return &Profiles[i], nil
		}
		names = append(names, Profiles[i].Name)
	}
	return nil, fmt.Errorf("profile %q: there are %s", name, strings.Join(names, ", "))
}
