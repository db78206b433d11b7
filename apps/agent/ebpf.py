"""eBPF programs written instruction by instruction (linux/bpf.h), maps for them, and interfaces that run them.

Programs are attached over rtnetlink to the ingress or the egress of interfaces, and stay until the interface is
deleted. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import socket
import struct
from typing import NamedTuple

R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10 = range(11)
# struct __sk_buff
SKB_LEN, SKB_VLAN_PRESENT, SKB_VLAN_TCI, SKB_TC_CLASSID = 0, 20, 24, 72
# enum bpf_func_id
MAP_LOOKUP, KTIME_GET_NS, VLAN_PUSH, VLAN_POP, REDIRECT, LOAD_BYTES, ECN_SET_CE = 1, 5, 18, 19, 23, 26, 97
TC_ACT_OK, TC_ACT_SHOT = 0, 2

_SYSCALL = {"x86_64": 321, "aarch64": 280}
_MAP_CREATE, _MAP_UPDATE, _MAP_DELETE, _PROG_LOAD = 0, 2, 3, 5
_PROG_TYPE_SCHED_CLS, _MAP_TYPE_HASH, _MAP_TYPE_ARRAY, _NO_PREALLOC = 3, 1, 2, 1
_PSEUDO_MAP = 1
_PROGRAM = struct.Struct("=IIQQIIQII16s")  # union bpf_attr of BPF_PROG_LOAD, up to prog_name
_MAP = struct.Struct("=IIIII")  # of BPF_MAP_CREATE: type, bytes of a key and of a value, entries, flags
_ELEMENT = struct.Struct("=IxxxxQQQ")  # of BPF_MAP_UPDATE_ELEM: map, addresses of key and value, flags
_VERIFIER_LOG_BYTES = 1 << 20
_INSTRUCTION = struct.Struct("=BBhi")  # struct bpf_insn: opcode, registers, jump offset, constant

_MESSAGE = struct.Struct("=IHHII")  # struct nlmsghdr
_TCMSG = struct.Struct("=BxxxiIII")
_ATTRIBUTE = struct.Struct("=HH")
_RTM_NEWQDISC, _RTM_NEWTFILTER = 36, 44
_REQUEST_ACK_EXCL_CREATE = 0x1 | 0x4 | 0x200 | 0x400
HOOKS_PARENT, HOOKS = 0xFFFFFFF1, 0xFFFF0000  # TC_H_CLSACT, and the handle ffff: of its qdisc
_TCA_KIND, _TCA_OPTIONS, _TCA_BPF_FD, _TCA_BPF_NAME, _TCA_BPF_FLAGS = 1, 2, 6, 7, 8
_TCA_BPF_FLAG_ACT_DIRECT = 1
_ETH_P_ALL = 0x0003
_PRIORITY = 1


def instruction(opcode: int, target: int = 0, source: int = 0, offset: int = 0, constant: int = 0) -> bytes:
    """Return one instruction."""
    return _INSTRUCTION.pack(opcode, source << 4 | target, offset, constant)


def move(target: int, source: int) -> bytes:
    """Return ``target = source``."""
    return instruction(0xBF, target, source)


def set_to(target: int, constant: int) -> bytes:
    """Return ``target = constant``."""
    return instruction(0xB7, target, constant=constant)


def and_with(target: int, constant: int) -> bytes:
    """Return ``target &= constant``."""
    return instruction(0x57, target, constant=constant)


def add_to(target: int, constant: int) -> bytes:
    """Return ``target += constant``."""
    return instruction(0x07, target, constant=constant)


def load_word(target: int, base: int, offset: int) -> bytes:
    """Return ``target = the 32 bits at base + offset``."""
    return instruction(0x61, target, base, offset)


def load_packet_half(offset: int) -> bytes:
    """Return ``R0 = the 16 bits at an offset of the frame``, in the host's order; R6 holds the context."""
    return instruction(0x28, constant=offset)


def store_word(base: int, offset: int, source: int) -> bytes:
    """Return ``the 32 bits at base + offset = source``."""
    return instruction(0x63, base, source, offset)


def store_half(base: int, offset: int, source: int) -> bytes:
    """Return ``the 16 bits at base + offset = source``."""
    return instruction(0x6B, base, source, offset)


def jump_if_equal(register: int, constant: int, lines: int) -> bytes:
    """Return a jump over ``lines`` instructions if the register equals the constant."""
    return instruction(0x15, register, offset=lines, constant=constant)


def jump_unless_equal(register: int, constant: int, lines: int) -> bytes:
    """Return a jump over ``lines`` instructions unless the register equals the constant."""
    return instruction(0x55, register, offset=lines, constant=constant)


def jump(lines: int) -> bytes:
    """Return a jump over ``lines`` instructions."""
    return instruction(0x05, offset=lines)


def call(helper: int) -> bytes:
    """Return a call of a helper function."""
    return instruction(0x85, constant=helper)


def exit_program(verdict: int) -> tuple[bytes, bytes]:
    """Return the end of a program with this verdict."""
    return set_to(R0, verdict), instruction(0x95)


def load_map(target: int, descriptor: int) -> tuple[bytes, bytes]:
    """Return the two halves of the instruction that loads a map's address into register ``target``."""
    return instruction(0x18, target, _PSEUDO_MAP, constant=descriptor), instruction(0)


def load_program(program: bytes, name: bytes) -> int:
    """Return a file descriptor of a classifier program; raise OSError with the message of the kernel's verifier."""
    try:
        return _load(program, name, None)
    except OSError as error:
        # Choice: the log is requested on the second attempt only; a log that does not fit fails every program.
        log = ctypes.create_string_buffer(_VERIFIER_LOG_BYTES)
        with contextlib.suppress(OSError):
            os.close(_load(program, name, log))
        text = log.value.decode(errors="replace").strip().rpartition("\n")[2]
        raise OSError(error.errno, f"{error.strerror}" + (f" ({text})" if text else "")) from None


def _load(program: bytes, name: bytes, log: ctypes.Array[ctypes.c_char] | None) -> int:
    """Load a classifier program and return its file descriptor; the verifier writes into ``log``, if given."""
    code = ctypes.create_string_buffer(program, len(program))
    licence = ctypes.create_string_buffer(b"Apache-2.0")
    log_fields = (0, 0, 0) if log is None else (1, len(log), ctypes.addressof(log))
    count = len(program) // _INSTRUCTION.size
    head = (_PROG_TYPE_SCHED_CLS, count, ctypes.addressof(code), ctypes.addressof(licence))
    return _bpf(_PROG_LOAD, _PROGRAM.pack(*head, *log_fields, 0, 0, name))


def create_counter_map() -> int:
    """Return a file descriptor of a map with one 64-bit number, initially 0, under the key 0."""
    return _bpf(_MAP_CREATE, _MAP.pack(_MAP_TYPE_ARRAY, 4, 8, 1, 0))


class HashMap:
    """A hash map in the kernel, from keys of ``key_octets`` bytes to 32-bit numbers; ``descriptor`` is its file."""

    def __init__(self, key_octets: int, max_entries: int) -> None:
        self.descriptor = _bpf(_MAP_CREATE, _MAP.pack(_MAP_TYPE_HASH, key_octets, 4, max_entries, _NO_PREALLOC))

    def put(self, key: bytes, value: int) -> None:
        """Set the value of a key."""
        octets = ctypes.create_string_buffer(key, len(key))
        number = ctypes.c_uint32(value)
        _bpf(_MAP_UPDATE, _ELEMENT.pack(self.descriptor, ctypes.addressof(octets), ctypes.addressof(number), 0))

    def delete(self, key: bytes) -> None:
        """Delete a key, if it exists."""
        octets = ctypes.create_string_buffer(key, len(key))
        with contextlib.suppress(FileNotFoundError):
            _bpf(_MAP_DELETE, _ELEMENT.pack(self.descriptor, ctypes.addressof(octets), 0, 0))

    def close(self) -> None:
        """Close the file; the kernel keeps the map for the programs that use it."""
        os.close(self.descriptor)


class Hook(NamedTuple):
    """A place at an interface where programs run: the qdisc to create, and the parent of the filter there."""

    qdisc: bytes
    parent: int


INGRESS = Hook(b"ingress\0", HOOKS)
EGRESS = Hook(b"clsact\0", 0xFFFFFFF3)  # TC_H_MIN_EGRESS below ffff:


def run_at(hook: Hook, interface_index: int, program: bytes, name: bytes) -> None:
    """Let an interface run a program; the hook must be unused. OSError names what was rejected."""
    descriptor = load_program(program, name)
    try:
        qdisc = _TCMSG.pack(socket.AF_UNSPEC, interface_index, HOOKS, HOOKS_PARENT, 0)
        _ask(_RTM_NEWQDISC, qdisc + _attribute(_TCA_KIND, hook.qdisc))
        options = filter_options(descriptor, name)
        protocol = _PRIORITY << 16 | socket.htons(_ETH_P_ALL)
        tc_filter = _TCMSG.pack(socket.AF_UNSPEC, interface_index, 0, hook.parent, protocol)
        _ask(_RTM_NEWTFILTER, tc_filter + _attribute(_TCA_KIND, b"bpf\0") + _attribute(_TCA_OPTIONS, options))
    finally:
        os.close(descriptor)


def filter_options(descriptor: int, name: bytes) -> bytes:
    """Return the rtnetlink attributes of a filter that runs a loaded program and uses its verdict."""
    return (
        _attribute(_TCA_BPF_FD, struct.pack("=I", descriptor))
        + _attribute(_TCA_BPF_NAME, name + b"\0")
        + _attribute(_TCA_BPF_FLAGS, struct.pack("=I", _TCA_BPF_FLAG_ACT_DIRECT))
    )


def _ask(kind: int, body: bytes) -> None:
    """Send one request over rtnetlink and wait for its acknowledgement; raise OSError if it is an error."""
    header = _MESSAGE.pack(_MESSAGE.size + len(body), kind, _REQUEST_ACK_EXCL_CREATE, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.send(header + body)
        answer = netlink.recv(65536)
    error = -struct.unpack_from("=i", answer, _MESSAGE.size)[0]
    if error:
        raise OSError(error, f"rtnetlink: {os.strerror(error)}")


def _attribute(kind: int, value: bytes) -> bytes:
    """Return one rtnetlink attribute, padded."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def _bpf(command: int, attributes: bytes) -> int:
    """Call bpf(2) and return its result; OSError if it fails."""
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"the number of bpf(2) is not known for {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(number, command, ctypes.c_char_p(attributes), len(attributes))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"bpf(2): {os.strerror(error)}")
    return int(result)
