"""A vswitch of access ports and one trunk in the kernel: two eBPF programs a PN instead of a bridge in userspace.

A PN has one VN in each VLAN, so that its vswitch has nothing to learn: what a VN sends leaves on the trunk with the
VLAN's tag, what comes in on the trunk goes to the VN of its tag, without it. Frames that a VN has tagged itself, and
those on the trunk without a tag or with that of a VLAN without a VN here, are dropped.

The programs (linux/bpf.h) are written here instruction by instruction, loaded by bpf(2) and attached to interfaces'
ingress over rtnetlink; the interfaces hold them, and they go when the interfaces go. Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
from collections.abc import Mapping

_SYSCALL_BPF = {"x86_64": 321, "aarch64": 280}
_BPF_PROG_LOAD, _BPF_PROG_TYPE_SCHED_CLS = 5, 3
_PROGRAM = struct.Struct("=IIQQIIQII16s")  # union bpf_attr as BPF_PROG_LOAD takes it, up to prog_name
_INSTRUCTION = struct.Struct("=BBhi")  # struct bpf_insn: opcode, registers, jump offset, constant
_R0, _R1, _R2, _R3, _R6, _R7, _R8 = 0, 1, 2, 3, 6, 7, 8
_VLAN_PRESENT, _VLAN_TCI = 20, 24  # struct __sk_buff
_VLAN_PUSH, _VLAN_POP, _REDIRECT = 18, 19, 23  # enum bpf_func_id
_TC_ACT_SHOT = 2
_TPID = socket.htons(0x8100)
_VID_MASK = 0x0FFF
_NAME = b"dets_vlan"

_MESSAGE = struct.Struct("=IHHII")  # struct nlmsghdr
_TCMSG = struct.Struct("=BxxxiIII")
_ATTRIBUTE = struct.Struct("=HH")
_RTM_NEWQDISC, _RTM_NEWTFILTER = 36, 44
_REQUEST_ACK_EXCL_CREATE = 0x1 | 0x4 | 0x200 | 0x400
_INGRESS_PARENT, _INGRESS_HANDLE = 0xFFFFFFF1, 0xFFFF0000
_TCA_KIND, _TCA_OPTIONS, _TCA_BPF_FD, _TCA_BPF_NAME, _TCA_BPF_FLAGS = 1, 2, 6, 7, 8
_TCA_BPF_FLAG_ACT_DIRECT = 1
_ETH_P_ALL = 0x0003
_PRIORITY = 1


def attach(trunk: str, access: Mapping[str, int]) -> None:
    """Switch frames between interfaces: ``trunk`` and the access ports, names to VLAN ids. OSError says what refused.

    The interfaces must be new: nothing may be at their ingress.
    """
    trunk_index = socket.if_nametoindex(trunk)
    indices = {vid: socket.if_nametoindex(name) for name, vid in access.items()}
    for vid, index in indices.items():
        _run_at_ingress(index, access_program(vid, trunk_index))
    _run_at_ingress(trunk_index, trunk_program(indices))


def why_not() -> str:
    """Return why this process may not load such programs, "" where it may."""
    try:
        os.close(_load(access_program(1, 1)))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def access_program(vlan_vid: int, trunk_index: int) -> bytes:
    """Return what an access port does with a VN's frame: tag it and send it on the trunk."""
    return b"".join(
        (
            _move(_R6, _R1),
            _load_word(_R1, _R6, _VLAN_PRESENT),
            _jump_if_equal(_R1, 0, 2),
            *_leave(_TC_ACT_SHOT),
            _move(_R1, _R6),
            _set(_R2, _TPID),
            _set(_R3, vlan_vid),
            _call(_VLAN_PUSH),
            *_redirect(_set(_R1, trunk_index)),
        )
    )


def trunk_program(ports: Mapping[int, int]) -> bytes:
    """Return what the trunk does with a frame: give it, without its tag, to the port (an index) of its VLAN."""
    lines_to_pop = 2 * len(ports)  # from the first choice's jump: over the other choices and the two lines that drop
    choices = [
        line
        for number, (vid, index) in enumerate(ports.items())
        for line in (_set(_R8, index), _jump_if_equal(_R7, vid, lines_to_pop - 2 * number))
    ]
    return b"".join(
        (
            _move(_R6, _R1),
            _load_word(_R7, _R6, _VLAN_PRESENT),
            _jump_if_equal(_R7, 0, 2 + len(choices)),
            _load_word(_R7, _R6, _VLAN_TCI),
            _and(_R7, _VID_MASK),
            *choices,
            *_leave(_TC_ACT_SHOT),
            _move(_R1, _R6),
            _call(_VLAN_POP),
            *_redirect(_move(_R1, _R8)),
        )
    )


def _line(opcode: int, target: int = 0, source: int = 0, offset: int = 0, constant: int = 0) -> bytes:
    return _INSTRUCTION.pack(opcode, source << 4 | target, offset, constant)


def _move(target: int, source: int) -> bytes:
    return _line(0xBF, target, source)


def _set(target: int, constant: int) -> bytes:
    return _line(0xB7, target, constant=constant)


def _and(target: int, constant: int) -> bytes:
    return _line(0x57, target, constant=constant)


def _load_word(target: int, base: int, offset: int) -> bytes:
    return _line(0x61, target, base, offset)


def _jump_if_equal(register: int, constant: int, lines: int) -> bytes:
    return _line(0x15, register, offset=lines, constant=constant)


def _call(helper: int) -> bytes:
    return _line(0x85, constant=helper)


def _leave(verdict: int) -> tuple[bytes, bytes]:
    return _set(_R0, verdict), _line(0x95)


def _redirect(index_to_r1: bytes) -> tuple[bytes, ...]:
    return index_to_r1, _set(_R2, 0), _call(_REDIRECT), _line(0x95)


def _load(program: bytes) -> int:
    """Return a file descriptor of the program; raise OSError with what the kernel's verifier says."""
    number = _SYSCALL_BPF.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"the number of bpf(2) is not known for {platform.machine()}")
    code = ctypes.create_string_buffer(program, len(program))
    licence = ctypes.create_string_buffer(b"Apache-2.0")
    said = ctypes.create_string_buffer(4096)
    attributes = _PROGRAM.pack(
        _BPF_PROG_TYPE_SCHED_CLS,
        len(program) // _INSTRUCTION.size,
        ctypes.addressof(code),
        ctypes.addressof(licence),
        1,
        len(said),
        ctypes.addressof(said),
        0,
        0,
        _NAME,
    )
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(number, _BPF_PROG_LOAD, ctypes.c_char_p(attributes), len(attributes))
    if descriptor < 0:
        error = ctypes.get_errno()
        text = said.value.decode(errors="replace").strip().rpartition("\n")[2]
        raise OSError(error, f"bpf(2): {os.strerror(error)}" + (f" ({text})" if text else ""))
    return int(descriptor)


def _run_at_ingress(interface_index: int, program: bytes) -> None:
    descriptor = _load(program)
    try:
        qdisc = _TCMSG.pack(socket.AF_UNSPEC, interface_index, _INGRESS_HANDLE, _INGRESS_PARENT, 0)
        _ask(_RTM_NEWQDISC, qdisc + _attribute(_TCA_KIND, b"ingress\0"))
        options = (
            _attribute(_TCA_BPF_FD, struct.pack("=I", descriptor))
            + _attribute(_TCA_BPF_NAME, _NAME + b"\0")
            + _attribute(_TCA_BPF_FLAGS, struct.pack("=I", _TCA_BPF_FLAG_ACT_DIRECT))
        )
        protocol = _PRIORITY << 16 | socket.htons(_ETH_P_ALL)
        tc_filter = _TCMSG.pack(socket.AF_UNSPEC, interface_index, 0, _INGRESS_HANDLE, protocol)
        _ask(_RTM_NEWTFILTER, tc_filter + _attribute(_TCA_KIND, b"bpf\0") + _attribute(_TCA_OPTIONS, options))
    finally:
        os.close(descriptor)


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
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)
