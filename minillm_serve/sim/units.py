"""Bytes, and how to say them.

Memory is handed out in powers of two, so this course says GiB (2**30 bytes) wherever memory is
divided up, and GB (10**9 bytes) only where a vendor's bandwidth or a file size is quoted.
"""

from __future__ import annotations

KiB = 1024
MiB = 1024**2
GiB = 1024**3
KB = 10**3
MB = 10**6
GB = 10**9

_BINARY = (("GiB", GiB), ("MiB", MiB), ("KiB", KiB))


def format_bytes(count: float, digits: int = 2) -> str:
    """Say a number of bytes in the largest binary unit that keeps it at 1 or more.

    Args:
        count: bytes, may be negative (a deficit) or fractional (4-bit values).
        digits: digits after the point at most; trailing zeros are dropped.

    Returns:
        For example ``'512 KiB'``, ``'2 GiB'``, ``'12.55 GiB'`` or ``'96 B'``.
    """
    for name, size in _BINARY:
        if abs(count) >= size:
            return f"{_trim(count / size, digits)} {name}"
    return f"{_trim(count, digits)} B"


def _trim(value: float, digits: int) -> str:
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
