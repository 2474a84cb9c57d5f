package rocev2

// opcodes is indexed by opcode; the ones that are not known have HeaderLen 0.
var opcodes = buildOpcodes()

// row is one line of the opcode table, for the lower five bits of an opcode.
type row struct {
	code    Opcode
	name    string
	op      Operation
	first   bool
	last    bool
	headers HeaderSet
	payload PayloadRule
	role    Role
}

// connectedRows are the operations of the connected services; XRC has all of
// them, with an XRCETH in every request.
var connectedRows = []row{
	{0x00, "SEND_FIRST", OpSend, true, false, 0, PayloadMTU, RoleRequest},
	{0x01, "SEND_MIDDLE", OpSend, false, false, 0, PayloadMTU, RoleRequest},
	{0x02, "SEND_LAST", OpSend, false, true, 0, PayloadNonEmpty, RoleRequest},
	{0x03, "SEND_LAST_WITH_IMMEDIATE", OpSend, false, true, HasImmDt, PayloadNonEmpty, RoleRequest},
	{0x04, "SEND_ONLY", OpSend, true, true, 0, PayloadAny, RoleRequest},
	{0x05, "SEND_ONLY_WITH_IMMEDIATE", OpSend, true, true, HasImmDt, PayloadAny, RoleRequest},
	{0x06, "RDMA_WRITE_FIRST", OpWrite, true, false, HasRETH, PayloadMTU, RoleRequest},
	{0x07, "RDMA_WRITE_MIDDLE", OpWrite, false, false, 0, PayloadMTU, RoleRequest},
	{0x08, "RDMA_WRITE_LAST", OpWrite, false, true, 0, PayloadNonEmpty, RoleRequest},
	{0x09, "RDMA_WRITE_LAST_WITH_IMMEDIATE", OpWrite, false, true, HasImmDt, PayloadNonEmpty, RoleRequest},
	{0x0a, "RDMA_WRITE_ONLY", OpWrite, true, true, HasRETH, PayloadAny, RoleRequest},
	{0x0b, "RDMA_WRITE_ONLY_WITH_IMMEDIATE", OpWrite, true, true, HasRETH | HasImmDt, PayloadAny, RoleRequest},
	{0x0c, "RDMA_READ_REQUEST", OpReadRequest, true, true, HasRETH, PayloadNone, RoleRequest},
	{0x0d, "RDMA_READ_RESPONSE_FIRST", OpReadResponse, true, false, HasAETH, PayloadMTU, RoleResponse},
	{0x0e, "RDMA_READ_RESPONSE_MIDDLE", OpReadResponse, false, false, 0, PayloadMTU, RoleResponse},
	{0x0f, "RDMA_READ_RESPONSE_LAST", OpReadResponse, false, true, HasAETH, PayloadNonEmpty, RoleResponse},
	{0x10, "RDMA_READ_RESPONSE_ONLY", OpReadResponse, true, true, HasAETH, PayloadAny, RoleResponse},
	{0x11, "ACKNOWLEDGE", OpAcknowledge, true, true, HasAETH, PayloadNone, RoleResponse},
	{0x12, "ATOMIC_ACKNOWLEDGE", OpAtomicAcknowledge, true, true, HasAETH | HasAtomicAckETH, PayloadNone, RoleResponse},
	{0x13, "COMPARE_SWAP", OpCompareSwap, true, true, HasAtomicETH, PayloadNone, RoleRequest},
	{0x14, "FETCH_ADD", OpFetchAdd, true, true, HasAtomicETH, PayloadNone, RoleRequest},
	{0x16, "SEND_LAST_WITH_INVALIDATE", OpSend, false, true, HasIETH, PayloadNonEmpty, RoleRequest},
	{0x17, "SEND_ONLY_WITH_INVALIDATE", OpSend, true, true, HasIETH, PayloadAny, RoleRequest},
	{0x1c, "FLUSH", OpFlush, true, true, HasFETH | HasRETH, PayloadNone, RoleRequest},
	{0x1d, "ATOMIC_WRITE", OpAtomicWrite, true, true, HasRETH, PayloadEight, RoleRequest},
}

func buildOpcodes() [256]OpcodeInfo {
	var table [256]OpcodeInfo
	add := func(s Service, prefix string, r row) {
		table[Opcode(s)<<5|r.code] = OpcodeInfo{
			Name: prefix + r.name, Service: s, Operation: r.op, First: r.first, Last: r.last,
			Headers: r.headers, HeaderLen: BTHLen + r.headers.Len(), Payload: r.payload, Role: r.role,
			WithImm: r.headers.Has(HasImmDt), WithInv: r.headers.Has(HasIETH),
		}
	}
	for _, r := range connectedRows {
		add(ServiceRC, "RC_", r)
		if r.code <= RCWriteOnlyImm {
			add(ServiceUC, "UC_", r)
		}
		if r.role == RoleRequest {
			r.headers |= HasXRCETH
		}
		add(ServiceXRC, "XRC_", r)
	}
	add(ServiceUD, "UD_", row{0x04, "SEND_ONLY", OpSend, true, true, HasDETH, PayloadAny, RoleRequest})
	add(ServiceUD, "UD_", row{0x05, "SEND_ONLY_WITH_IMMEDIATE", OpSend, true, true, HasDETH | HasImmDt, PayloadAny, RoleRequest})
	add(ServiceCNP, "", row{0x01, "CNP", OpCNP, true, true, HasCNP, PayloadNone, RoleNotify})
	add(ServiceVendor, "", row{0x11, "VENDOR_SELECTIVE_ACKNOWLEDGE", OpSelectiveAck, true, true, HasAETH, PayloadAny, RoleResponse})
	return table
}
