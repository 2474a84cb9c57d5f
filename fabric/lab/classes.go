package lab

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/internal/closest"
)

// Class is a traffic class of all switches, where it differs from that of the
// profile. Hosts have its weight, too.
type Class struct {
	Name     string // by which traffic names it
	DSCP     *int   `toml:"dscp"` // by which packets get into it, 0 to 63
	Number   *int   // of the class, 0 to 7; nil: the one into which the profile puts DSCP
	Weight   int    // share in DWRR, 1 to 65535; 0: the profile's
	Strict   *bool  // before all that are not, the highest number first; nil: the profile's
	Lossless *bool  // it pauses, with the thresholds of the profile's class for RoCE; nil: the profile's
	RED      *RED   `toml:"red"` // marks; nil: the profile's
}

// classes brings the classes of a scenario into a profile.
func (n *Network) classes(p *topology.Profile) error {
	if len(n.Classes) == 0 {
		return nil
	}
	p.DSCP = slices.Clone(p.DSCP)
	if p.DSCP == nil {
		p.DSCP = make([]uint8, 64)
		for d := range p.DSCP {
			p.DSCP[d] = uint8(d / 8)
		}
	}
	roce := p.Classes[p.DSCP[p.RoCE&63]]
	var used, dscps, names []string
	once := func(list *[]string, name string) bool {
		had := name != "" && slices.Contains(*list, name)
		*list = append(*list, name)
		return !had
	}
	for i := range n.Classes {
		c := &n.Classes[i]
		if err := c.check(n.Lossy); err != nil {
			return fmt.Errorf("network.class %d: %w", i+1, err)
		}
		number := p.DSCP[*c.DSCP]
		if c.Number != nil {
			number = uint8(*c.Number)
		}
		switch {
		case !once(&names, c.Name):
			return fmt.Errorf("network.class %d: there is another class %q", i+1, c.Name)
		case !once(&dscps, strconv.Itoa(*c.DSCP)):
			return fmt.Errorf("network.class %d: there is another class with dscp %d", i+1, *c.DSCP)
		case !once(&used, strconv.Itoa(int(number))):
			return fmt.Errorf("network.class %d: it is class %d of the switches, as another one is: number says which of 0 to 7", i+1, number)
		}
		p.DSCP[*c.DSCP] = number
		k := &p.Classes[number]
		if c.Lossless != nil {
			if *c.Lossless && !k.Lossless {
				weight, strict, red := k.Weight, k.Strict, k.RED
				*k = roce
				k.Lossless, k.Weight, k.Strict, k.RED = true, weight, strict, red
			}
			k.Lossless = *c.Lossless
		}
		if c.Weight > 0 {
			k.Weight = uint16(c.Weight)
		}
		if c.Strict != nil {
			k.Strict = *c.Strict
		}
	}
	return nil
}

// check says what is wrong with numbers.
func (c *Class) check(lossy bool) error {
	switch {
	case c.DSCP == nil || *c.DSCP < 0 || *c.DSCP > 63:
		return fmt.Errorf("dscp says which packets get into it: 0 to 63")
	case c.Number != nil && (*c.Number < 0 || *c.Number >= network.NumClasses):
		return fmt.Errorf("number is %d: there are 0 to %d", *c.Number, network.NumClasses-1)
	case c.Weight < 0 || c.Weight > math.MaxUint16:
		return fmt.Errorf("weight is %d: it is 1 to %d", c.Weight, math.MaxUint16)
	case c.Strict != nil && *c.Strict && c.Weight > 0:
		return fmt.Errorf("strict goes before all weights: take weight or strict out")
	case c.Name != "" && strings.Trim(c.Name, "0123456789") == "":
		return fmt.Errorf("name is %q: it is no number, which would be a DSCP", c.Name)
	case lossy && c.Lossless != nil && *c.Lossless:
		return fmt.Errorf("lossless does nothing beside network.lossy: take one of the two out")
	case c.RED != nil && c.RED.Kmax > 0 && c.RED.Kmin > c.RED.Kmax:
		return fmt.Errorf("red.kmin is %v, above kmax, %v: marks begin at kmin", c.RED.Kmin, c.RED.Kmax)
	}
	if c.RED != nil {
		_, err := share("red.pmax", c.RED.Pmax, 1e6)
		return err
	}
	return nil
}

// mark sets the marks of the classes of a port, that have their own.
func (n *Network) mark(classes *[network.NumClasses]network.Class, dscp []uint8) {
	for i := range n.Classes {
		if red := n.Classes[i].RED; red != nil {
			pmax, _ := share("", red.Pmax, 1e6) // check has tried it
			classes[dscp[*n.Classes[i].DSCP]].RED = network.RED{Kmin: int64(red.Kmin), Kmax: int64(red.Kmax), Pmax: uint32(pmax)}
		}
	}
}

// dscpOf returns the DSCP of a class, which is named by its name or its DSCP.
func (n *Network) dscpOf(class string) (int, error) {
	if d, err := strconv.Atoi(class); err == nil {
		if d < 0 || d > 63 {
			return 0, fmt.Errorf("class %d is no DSCP: there are 0 to 63", d)
		}
		return d, nil
	}
	var names []string
	for i := range n.Classes {
		if c := &n.Classes[i]; c.Name == class && c.DSCP != nil {
			return *c.DSCP, nil
		}
		if n.Classes[i].Name != "" {
			names = append(names, n.Classes[i].Name)
		}
	}
	if len(names) == 0 {
		return 0, fmt.Errorf("class %.40q is no DSCP, and no [[network.class]] has a name", class)
	}
	return 0, fmt.Errorf("class is %.40q: there are %s, or a DSCP%s", class, strings.Join(names, ", "), closest.Question(class, names))
}
