-- Wireshark dissector for what this software adds to RoCEv2: the selective
-- acknowledgement between native peers (opcode 0xd1), the messages and the
-- directory of package rdma, and the streams of rsockets, which package
-- rdmanet speaks. It needs Wireshark 3.6 or newer.
--
-- Copy it to the directory of personal Lua plugins (Help, About, Folders), or
-- start: wireshark -X lua_script:rocev2.lua
--
-- It comes after Wireshark's own dissector of InfiniBand and adds a tree. Which
-- protocol a connection has, both sides say in the private data of their REQ
-- and REP, so the capture must have them. The fields have the names that
-- rocev2 dump --json gives them.

local rocev2 = Proto("rocev2", "RoCEv2 applications")

local f = {
	protocol = ProtoField.string("rocev2.protocol", "Protocol of the programs"),

	sack_missing = ProtoField.uint32("rocev2.sack.missing", "Missing PSN"),
	sack_arrived = ProtoField.string("rocev2.sack.arrived", "PSNs that have arrived"),
	sack_room = ProtoField.uint32("rocev2.sack.room", "PSNs that there is room for"),

	hello_regions = ProtoField.bool("rocev2.rdma.hello.regions", "Exports regions"),
	hello_credits = ProtoField.uint16("rocev2.rdma.hello.credits", "Credits at first"),
	hello_size = ProtoField.uint32("rocev2.rdma.hello.size", "Longest message"),
	hello_private = ProtoField.uint8("rocev2.rdma.hello.private", "Private data of the program"),

	kind = ProtoField.string("rocev2.rdma.kind", "Kind"),
	credits = ProtoField.uint16("rocev2.rdma.credits", "Credits given back"),
	messages = ProtoField.uint32("rocev2.rdma.messages", "Messages"),
	malformed = ProtoField.string("rocev2.rdma.malformed", "Malformed"),
	op = ProtoField.string("rocev2.rdma.directory.op", "Operation"),
	tag = ProtoField.uint16("rocev2.rdma.directory.tag", "Tag"),
	name = ProtoField.string("rocev2.rdma.directory.name", "Name"),
	status = ProtoField.string("rocev2.rdma.directory.status", "Status"),
	regions = ProtoField.uint16("rocev2.rdma.directory.regions", "Regions"),
	more = ProtoField.bool("rocev2.rdma.directory.more", "The list goes on"),

	stream_op = ProtoField.string("rocev2.rsockets.op", "Operation"),
	value = ProtoField.uint32("rocev2.rsockets.value", "Value"),
	control = ProtoField.string("rocev2.rsockets.control", "Control"),
	block_credits = ProtoField.uint16("rocev2.rsockets.block.credits", "Credits"),
	block_order = ProtoField.bool("rocev2.rsockets.block.bigendian", "Reads its slots big-endian"),
	block_features = ProtoField.uint8("rocev2.rsockets.block.features", "Features"),
}
local memories = {}
for _, m in ipairs({ { "target", "Target" }, { "block.slots", "Slots" }, { "block.ring", "Ring" } }) do
	local name = "rocev2.rsockets." .. m[1]
	memories[m[1]] = {
		addr = ProtoField.uint64(name .. ".addr", m[2] .. " address", base.HEX),
		key = ProtoField.uint32(name .. ".key", m[2] .. " key", base.HEX),
		length = ProtoField.uint32(name .. ".length", m[2] .. " length"),
	}
end
local all = {}
for _, field in pairs(f) do all[#all + 1] = field end
for _, m in pairs(memories) do
	for _, field in pairs(m) do all[#all + 1] = field end
end
rocev2.fields = all

local get = {
	src4 = Field.new("ip.src"),
	dst4 = Field.new("ip.dst"),
	src6 = Field.new("ipv6.src"),
	dst6 = Field.new("ipv6.dst"),
	opcode = Field.new("infiniband.bth.opcode"),
	destqp = Field.new("infiniband.bth.destqp"),
	udp = Field.new("udp.length"),
	req = Field.new("infiniband.cm.req"),
	req_qpn = Field.new("infiniband.cm.req.localqpn"),
	req_private = Field.new("infiniband.cm.req.ip_cm.private"),
	rep_to = Field.new("infiniband.cm.rep.remotecommid"),
	rep_qpn = Field.new("infiniband.cm.rep.localqpn"),
	rep_private = Field.new("infiniband.cm.rep.private"),
}

-- What is known of the connections, from the first look at the packets, which
-- comes in their order. A later look at a packet takes what that one found.
local requests -- by address and communication ID: the one that asked
local ends -- by address and queue pair: the protocol, and the byte order of slots
local found -- by the number of the frame: the end that its packet goes to

function rocev2.init()
	requests, ends, found = {}, {}, {}
end

local function key(address, number) return tostring(address) .. "/" .. tostring(number) end

-- The addresses of IP: Wireshark puts a LID in the place of those of a REQ.
-- The last ones count, where a tunnel has several.
local function source()
	local list = { get.src4() }
	if not list[1] then list = { get.src6() } end
	return list[1] and tostring(list[#list].value) or "?"
end

local function destination()
	local list = { get.dst4() }
	if not list[1] then list = { get.dst6() } end
	return list[1] and tostring(list[#list].value) or "?"
end

local function set(...)
	local s = {}
	for _, v in ipairs({ ... }) do s[v] = true end
	return s
end

-- Opcodes with immediate data, and where the payload begins after the BTH.
local sends = { [0x03] = 16, [0x05] = 16 } -- last, only
local writes = { [0x09] = 16, [0x0b] = 32 } -- last, only: with a RETH
local only = set(0x05, 0x0b)
local selective = 0xd1

-- named returns a name from a table, or the number.
local function named(names, n) return names[n] or ("reserved " .. n) end

-- memory adds an address, a key and a length.
local function memory(tree, name, range, little)
	local m = memories[name]
	local add = little and tree.add_le or tree.add
	add(tree, m.addr, range(0, 8))
	add(tree, m.key, range(8, 4))
	add(tree, m.length, range(12, 4))
end

-- A greeting is the private data of a REQ or a REP. It returns the protocol,
-- and of rsockets whether the side reads its slots big-endian.
local function greeting(b)
	if b:len() >= 16 and b(0, 4):string() == "RMSG" and b(4, 1):uint() == 1 then
		return "rdma", false
	end
	if b:len() < 40 or b(0, 1):uint() ~= 1 or b(2, 2):uint() == 0 then return nil end
	local slots = b(20, 4):uint()
	if slots < 2 or slots > 65536 then return nil end
	return "rsockets", b(1, 1):uint() % 2 == 1
end

local function show_greeting(tree, b, protocol)
	if protocol == "rdma" then
		tree:add(f.hello_regions, b(5, 1), b(5, 1):uint() % 2 == 1)
		tree:add(f.hello_credits, b(6, 2))
		tree:add(f.hello_size, b(8, 4))
		tree:add(f.hello_private, b(12, 1))
	else
		tree:add(f.block_credits, b(2, 2))
		tree:add(f.block_order, b(1, 1), b(1, 1):uint() % 2 == 1)
		tree:add(f.block_features, b(4, 1))
		memory(tree, "block.slots", b(8, 16))
		memory(tree, "block.ring", b(24, 16))
	end
	tree:add(f.protocol, protocol)
end

-- learn takes a REQ or a REP.
local function learn(protocol, big)
	if get.req() then
		requests[key(source(), get.req().value)] = { protocol = protocol, big = big, key = key(source(), get.req_qpn().value) }
		return
	end
	local asked = requests[key(destination(), get.rep_to().value)]
	if not asked then return end
	local mine = key(source(), get.rep_qpn().value)
	if protocol and protocol == asked.protocol then
		ends[asked.key] = { protocol = protocol, big = asked.big }
		ends[mine] = { protocol = protocol, big = big }
	else -- they do not understand each other
		ends[asked.key], ends[mine] = nil, nil
	end
end

local function show_selective(tree, tvb, at, last)
	local psn = tvb(at + 9, 3):uint()
	local ranges, first, n = {}, nil, 0
	local payload = at + 16
	for i = 0, 8 * (last - payload) do
		local arrived = i < 8 * (last - payload) and math.floor(tvb(payload + math.floor(i / 8), 1):uint() / 2 ^ (i % 8)) % 2 == 1
		if arrived then
			first = first or i
		elseif first then
			local text = string.format("%d", (psn + first + 1) % 2 ^ 24)
			if i - 1 > first then text = text .. string.format("-%d", (psn + i) % 2 ^ 24) end
			n = n + 1
			ranges[n] = text
			first = nil
		end
	end
	local arrived = table.concat(ranges, ",")
	tree:add(f.sack_missing, tvb(at + 9, 3), psn)
	tree:add(f.sack_arrived, tvb(payload, last - payload), arrived)
	local text = "SELECTIVE ACKNOWLEDGE has " .. arrived
	-- The code of credits of an ACK (IBTA 9.7.7.2, table 45): a power of two,
	-- or halfway to the next one.
	local code = tvb(at + 12, 1):uint()
	if tvb(at + 1, 1):uint() >= 0x80 and code < 0x1f then
		local room = code < 2 and code or 2 ^ math.floor(code / 2) * (code % 2 == 1 and 1.5 or 1)
		room = math.floor(room)
		tree:add(f.sack_room, tvb(at + 12, 1), room)
		text = text .. ", room for " .. string.format("%d", room)
	end
	return text
end

local kinds = { [0] = "message", "packed", "credit", "request", "reply", "end" }
local ops = { "lookup", "list" }
local statuses = { [0] = "found", "unknown", "refused", "not understood" }
local right_names = { "READ", "WRITE", "atomics", "persistence" }

-- packed shows the messages of a SEND. It returns text.
local function packed(tree, b)
	local n, at = 0, 0
	while b and at + 2 <= b:len() do
		local size = b(at, 2):uint()
		if at + 2 + size > b:len() then break end
		n = n + 1
		tree:add(b(at, 2 + size), string.format("message %d: %d B", n, size))
		at = at + 2 + size
	end
	tree:add(f.messages, n)
	if b and at < b:len() then tree:add(f.malformed, "a message is cut off") end
	return string.format(", %d messages", n)
end

local function request(tree, b)
	if not b or b:len() < 4 or b:len() > 259 then
		tree:add(f.malformed, "a request has 4 to 259 bytes")
		return " (malformed)"
	end
	local op, name = named(ops, b(0, 1):uint()), b:len() > 4 and b(4):string() or ""
	tree:add(f.op, b(0, 1), op)
	tree:add(f.tag, b(2, 2))
	if name == "" then tree:add(f.name, name) else tree:add(f.name, b(4), name) end
	return string.format(", %s %q", op, name)
end

local function reply(tree, b)
	if not b or b:len() < 8 then
		tree:add(f.malformed, "a reply has at least 8 bytes")
		return " (malformed)"
	end
	local status, count = named(statuses, b(1, 1):uint()), b(4, 2):uint()
	tree:add(f.op, b(0, 1), named(ops, b(0, 1):uint()))
	tree:add(f.tag, b(2, 2))
	tree:add(f.status, b(1, 1), status)
	tree:add(f.regions, b(4, 2))
	tree:add(f.more, b(6, 1), b(6, 1):uint() == 1)
	local at = 8
	for _ = 1, count do
		if at + 24 > b:len() or at + 24 + b(at + 21, 1):uint() > b:len() then
			tree:add(f.malformed, "a region is cut off")
			break
		end
		local size, rights = 24 + b(at + 21, 1):uint(), {}
		for i, right in ipairs(right_names) do
			if math.floor(b(at + 20, 1):uint() / 2 ^ (i - 1)) % 2 == 1 then rights[#rights + 1] = right end
		end
		local name = size > 24 and b(at + 24, size - 24):string() or ""
		tree:add(b(at, size), string.format("region %q: va 0x%s, %s B, rkey 0x%08x, %s", name, b(at, 8):bytes():tohex(true),
			tostring(b(at + 8, 8):uint64()), b(at + 16, 4):uint(), table.concat(rights, " ")))
		at = at + size
	end
	return string.format(", %s, %d regions", status, count)
end

local function show_message(tree, imm, b, whole)
	local kind, credits = math.floor(imm:uint() / 2 ^ 28), imm(2, 2):uint()
	tree:add(f.kind, imm(0, 1), named(kinds, kind))
	tree:add(f.credits, imm(2, 2))
	local text = "rdma " .. named(kinds, kind)
	if whole then
		if kind == 1 then text = text .. packed(tree, b) end
		if kind == 3 then text = text .. request(tree, b) end
		if kind == 4 then text = text .. reply(tree, b) end
	end
	if credits > 0 then text = text .. string.format(", %d credits back", credits) end
	return text
end

local stream_ops = { [0] = "DATA", [4] = "SGL", [6] = "IOMAP", [7] = "CTRL" }
local controls = { [0] = "disconnect", "keepalive", "shutdown" }

local function show_stream(tree, imm, b, to)
	local op, value = math.floor(imm:uint() / 2 ^ 29), imm:uint() % 2 ^ 29
	local name = stream_ops[op] or ("op " .. op)
	tree:add(f.stream_op, imm(0, 1), name)
	tree:add(f.value, imm, value)
	local text = "rsockets " .. name
	if op == 0 then text = text .. string.format(" %d B", value) end
	if op == 4 then
		text = text .. string.format(" credit %d", value)
		if b and b:len() == 16 then
			memory(tree, "target", b, not to.big)
			text = text .. string.format(" target %d B", to.big and b(12, 4):uint() or b(12, 4):le_uint())
		end
	end
	if op == 7 then
		local control = controls[value] or "reserved"
		tree:add(f.control, imm, control)
		text = text .. " " .. control
	end
	return text
end

function rocev2.dissector(tvb, pinfo, root)
	local opcode, udp = get.opcode(), get.udp()
	if not opcode or not udp then return end
	local at = opcode.offset -- of the BTH
	local last = at - 8 + udp.value - 4 -- the ICRC comes after it
	if at + 12 > tvb:len() or last > tvb:len() or last < at + 12 then return end -- cut off
	last = last - math.floor(tvb(at + 1, 1):uint() / 16) % 4 -- padding

	local private = get.req() and get.req_private() or get.rep_to() and get.rep_private()
	if private then
		local b = private.range
		local protocol, big = greeting(b)
		if not pinfo.visited then learn(protocol, big) end
		if protocol then show_greeting(root:add(rocev2, b), b, protocol) end
		return
	end

	if not pinfo.visited then found[pinfo.number] = ends[key(destination(), get.destqp().value)] end
	local to, code = found[pinfo.number], opcode.value
	local tree, text
	if code == selective then
		if last < at + 16 then return end
		tree = root:add(rocev2, tvb(at, last - at))
		text = show_selective(tree, tvb, at, last)
	end
	if to then
		tree = tree or root:add(rocev2, tvb(at, last - at))
		tree:add(f.protocol, to.protocol)
		local begins = to.protocol == "rdma" and sends[code] or to.protocol == "rsockets" and writes[code]
		if begins and at + begins <= last then
			local imm = tvb(at + begins - 4, 4)
			local b = at + begins < last and tvb(at + begins, last - at - begins) or nil
			if to.protocol == "rdma" then
				text = show_message(tree, imm, b, only[code])
			else
				text = show_stream(tree, imm, b, to)
			end
		end
	end
	if text then
		tree:append_text(": " .. text)
		pinfo.cols.info:append("  " .. text)
	end
end

register_postdissector(rocev2)
