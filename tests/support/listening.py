"""What a process and its descendants listen on, from Linux's /proc."""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

_LISTENS = "0A"


def descendants(process: int) -> set[int]:
    """The process and all that it has started, as far as they still belong to it."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found = {process}
    while more := {each for each, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def listening(processes: set[int]) -> set[tuple[IPv4Address | IPv6Address, int]]:
    """The addresses and ports of TCP on which the processes accept connections."""
    sockets: set[str] = set()
    for process in processes:
        with suppress(OSError):
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError):
                    sockets |= set(re.findall(r"socket:\[(\d+)\]", str(descriptor.readlink())))
    found = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS and fields[9] in sockets:
                    address, _, port = fields[1].partition(":")
                    found.add((_address(bytes.fromhex(address)), int(port, 16)))
    return found


def _address(octets: bytes) -> IPv4Address | IPv6Address:
    """An address as the kernel prints it: words of four bytes in the machine's order."""
    words = [octets[at : at + 4][::-1] for at in range(0, len(octets), 4)]
    found = ip_address(b"".join(words))
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found
