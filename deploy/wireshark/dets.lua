-- Wireshark dissector for DETS's Ethernet control frames (controller/agents/control_frames.py has the format).
--
-- Install: copy into ~/.local/lib/wireshark/plugins/, or run `wireshark -X lua_script:dets.lua`. tshark and Wireshark load no
-- Lua when they run as root. Opcodes that are not DETS's go to Wireshark's own MAC control dissector.

local MAC_CONTROL, LOCAL_EXPERIMENT = 0x8808, 0x88b5
local HEAD, OPCODE = 12, 2

local dets = Proto("dets", "DETS control frame")

local opcodes = {
    [0xDE01] = "Traffic Report",
    [0xDE02] = "Initialize",
    [0xDE03] = "Set Rate",
    [0xDE04] = "Keep Alive",
    [0xDE05] = "Deactivate",
    [0xDE06] = "Hello",
}

local field = {
    opcode = ProtoField.uint16("dets.opcode", "Opcode", base.HEX, opcodes),
    version = ProtoField.uint8("dets.version", "Version"),
    count = ProtoField.uint8("dets.count", "Entries"),
    seq = ProtoField.uint16("dets.seq", "Sequence"),
    time_ms = ProtoField.uint32("dets.time_ms", "Speaker's clock (ms)"),
    epoch = ProtoField.uint32("dets.epoch", "Epoch", base.HEX),
    sender = ProtoField.ether("dets.sender", "Sending VN"),
    receiver = ProtoField.ether("dets.receiver", "Receiving VN"),
    measured = ProtoField.uint32("dets.measured_kbps", "Measured (kb/s)"),
    dropped = ProtoField.uint32("dets.dropped_kbps", "Dropped (kb/s)"),
    limit = ProtoField.uint32("dets.limit_kbps", "Limit (kb/s)"),
    available = ProtoField.uint32("dets.available_kbps", "Available (kb/s)"),
    flags = ProtoField.uint32("dets.flags", "Flags", base.HEX),
    rate = ProtoField.uint32("dets.rate_kbps", "Rate (kb/s)"),
    features = ProtoField.uint32("dets.features", "Features", base.HEX),
    interval = ProtoField.uint16("dets.interval_ms", "Interval (ms)"),
    classes = ProtoField.uint16("dets.most_classes", "Most classes"),
    link_rate = ProtoField.uint32("dets.link_rate_kbps", "Link rate (kb/s)"),
}
for _, one in pairs(field) do
    table.insert(dets.fields, one)
end

local does_not_fit = ProtoExpert.new(
    "dets.count_does_not_fit", "Count does not fit", expert.group.MALFORMED, expert.severity.ERROR)
dets.experts = { does_not_fit }

local PAIR = { { field.sender, 6 }, { field.receiver, 6 } }
local function pair_and(...)
    local layout = { PAIR[1], PAIR[2] }
    for _, one in ipairs({ ... }) do
        table.insert(layout, { one, 4 })
    end
    return layout
end

-- The fields of an entry, each with its octets.
local layouts = {
    [0xDE01] = pair_and(field.measured, field.dropped, field.limit, field.available, field.flags),
    [0xDE02] = PAIR,
    [0xDE03] = pair_and(field.rate),
    [0xDE04] = PAIR,
    [0xDE05] = PAIR,
    [0xDE06] = { { field.features, 4 }, { field.interval, 2 }, { field.classes, 2 }, { field.link_rate, 4 } },
}

local function octets(layout)
    local sum = 0
    for _, one in ipairs(layout) do
        sum = sum + one[2]
    end
    return sum
end

-- The built-in dissector of MAC control frames: there is no table by opcode.
local by_ethertype = DissectorTable.get("ethertype")
local built_in = by_ethertype:get_dissector(MAC_CONTROL)

function dets.dissector(buffer, packet, tree)
    local opcode = buffer:len() >= OPCODE + HEAD and buffer(0, 2):uint() or 0
    local layout = layouts[opcode]
    if layout == nil then
        return built_in and built_in:call(buffer, packet, tree) or 0
    end
    local count = buffer(3, 1):uint()
    packet.cols.protocol = "DETS"
    packet.cols.info = string.format("%s, %d", opcodes[opcode], count)
    local frame = tree:add(dets, buffer())
    frame:add(field.opcode, buffer(0, 2))
    frame:add(field.version, buffer(2, 1))
    frame:add(field.count, buffer(3, 1))
    frame:add(field.seq, buffer(4, 2))
    frame:add(field.time_ms, buffer(6, 4))
    frame:add(field.epoch, buffer(10, 4))
    local at, size = OPCODE + HEAD, octets(layout)
    for number = 1, count do
        if at + size > buffer:len() then
            frame:add_proto_expert_info(does_not_fit)
            break
        end
        local entry = frame:add(dets, buffer(at, size), string.format("Entry %d", number))
        for _, one in ipairs(layout) do
            entry:add(one[1], buffer(at, one[2]))
            at = at + one[2]
        end
    end
    return buffer:len()
end

by_ethertype:add(MAC_CONTROL, dets)
by_ethertype:add(LOCAL_EXPERIMENT, dets)
