package machine

import "strconv"

func vendorOf(id string) string {
	switch id {
	case "GenuineIntel":
		return Intel
	case "AuthenticAMD":
		return AMD
	}
	return slug(id)
}

// implementerOf names the codes of ARM's MIDR_EL1.
func implementerOf(code string) string {
	switch code {
	case "0x41":
		return ARM
	case "0x61":
		return "apple"
	case "0xc0":
		return "ampere"
	}
	return "arm-implementer-" + code
}

// designs are names of designs by vendor, family and model.
var designs = map[[3]string]string{
	{Intel, "6", "85"}:  "Skylake to Cooper Lake",
	{Intel, "6", "106"}: "Ice Lake",
	{Intel, "6", "143"}: "Sapphire Rapids",
	{Intel, "6", "207"}: "Emerald Rapids",
	{Intel, "6", "173"}: "Granite Rapids",
	{ARM, "8", "0xd0c"}: "Neoverse N1",
	{ARM, "8", "0xd40"}: "Neoverse V1",
	{ARM, "8", "0xd49"}: "Neoverse N2",
	{ARM, "8", "0xd4f"}: "Neoverse V2",
	{AMD, "23", "1"}:    "Zen",
	{AMD, "23", "49"}:   "Zen 2",
	{AMD, "25", "1"}:    "Zen 3",
	{AMD, "25", "17"}:   "Zen 4",
	{AMD, "25", "97"}:   "Zen 4",
	{AMD, "25", "160"}:  "Zen 4c",
	{AMD, "26", "17"}:   "Zen 5c",
}

// design names the design, if it is one that this program knows.
func (p *Processor) design() string {
	if name := designs[[3]string{p.Vendor, p.Family, p.Model}]; name != "" {
		return name
	}
	if n, err := strconv.Atoi(p.Model); p.Vendor == AMD && p.Family == "26" && err == nil && n < 80 {
		return "Zen 5"
	}
	return ""
}
