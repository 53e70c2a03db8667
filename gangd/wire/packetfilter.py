"""A program for the kernel that drops packets to a listening socket by where they come from.

Whoever is refused by it costs this process nothing at all: no descriptor, no wake-up, no entry in the queue
of connections. It is a classic BPF program (``Documentation/networking/filter.rst`` of the kernel,
socket(7) ``SO_ATTACH_FILTER``), and needs no privilege. Connections that stand are sockets of their own and
go on.
"""

from __future__ import annotations

import ctypes
import ipaddress
import socket
import struct
from collections.abc import Iterable

SO_ATTACH_FILTER = 26
MOST_ORIGINS = 256
_NET = 0xFFF00000  # SKF_NET_OFF, -0x100000: offsets in the IP header
_LOAD_WORD, _LOAD_BYTE = 0x20, 0x30  # ld [k], ldb [k]
_SHIFT_RIGHT, _JUMP, _JUMP_IF_EQUAL, _RETURN = 0x74, 0x05, 0x15, 0x06
_PASS, _DROP = 0xFFFFFFFF, 0
_SOURCE_IPV4, _SOURCE_IPV6 = 12, 8  # offsets in their headers
_IPV6_PREFIX = 64


def origin_of(address: str) -> str:
    """Return what an address is counted under: itself, or the network of 64 bits of an IPv6 one.

    One host has 2**64 IPv6 addresses to choose from. An IPv4 address in IPv6 clothes is an IPv4 one.
    """
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))
    return str(parsed)


def program(origins: Iterable[str]) -> bytes:
    """Return the program that drops what comes from these origins, as ``struct sock_filter`` have it.

    More than ``MOST_ORIGINS`` are too many to tell apart: then everything is dropped.
    """
    wanted = sorted(set(origins))
    if len(wanted) > MOST_ORIGINS:
        return _instruction(_RETURN, _DROP)
    four = [int(ipaddress.IPv4Address(one)).to_bytes(4) for one in wanted if ":" not in one]
    six = [ipaddress.IPv6Network(one).network_address.packed[:8] for one in wanted if ":" in one]
    ipv4 = [_instruction(_LOAD_WORD, _NET + _SOURCE_IPV4)]
    for packed in four:
        ipv4 += [_if_equal(packed, 0, 1), _instruction(_RETURN, _DROP)]
    ipv4.append(_instruction(_RETURN, _PASS))
    ipv6 = []
    for packed in six:
        ipv6 += [
            _instruction(_LOAD_WORD, _NET + _SOURCE_IPV6),
            _if_equal(packed[:4], 0, 3),
            _instruction(_LOAD_WORD, _NET + _SOURCE_IPV6 + 4),
            _if_equal(packed[4:], 0, 1),
            _instruction(_RETURN, _DROP),
        ]
    ipv6.append(_instruction(_RETURN, _PASS))
    head = [
        _instruction(_LOAD_BYTE, _NET),  # version and length of the header
        _instruction(_SHIFT_RIGHT, 4),
        _instruction(_JUMP_IF_EQUAL, 6, 0, 1),
        _instruction(_JUMP, len(ipv4)),
    ]
    return b"".join([*head, *ipv4, *ipv6])


def attach(listener: socket.socket, origins: Iterable[str], *, everybody: bool = False) -> None:
    """Let a listening socket drop what comes from these origins, or from ``everybody``; raises OSError."""
    code = _instruction(_RETURN, _DROP) if everybody else program(origins)
    kept = ctypes.create_string_buffer(code, len(code))
    fprog = struct.pack("@HP", len(code) // 8, ctypes.addressof(kept))
    listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, fprog)


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)


def _if_equal(word: bytes, if_true: int, if_false: int) -> bytes:
    return _instruction(_JUMP_IF_EQUAL, int.from_bytes(word), if_true, if_false)
