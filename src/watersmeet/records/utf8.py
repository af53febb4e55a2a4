"""Check which of many values are valid UTF-8."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def is_utf8(values: pa.Array) -> np.ndarray:
    """Return which values (``binary``) are valid UTF-8; NULLs are."""
    good = np.ones(len(values), bool)
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset)
        octets = np.frombuffer(values.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
        places = _wrong_places(octets, offsets - offsets[0])
        good[_numbers_of(places, offsets - offsets[0])] = False
        good |= ~values.is_valid().to_numpy(zero_copy_only=False)
    return good


def _numbers_of(places: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the numbers of the values that have the bytes at ``places``."""
    return np.searchsorted(offsets, places, "right") - 1


def _wrong_places(octets: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return places in each value that is not valid: lead bytes, or bytes that should or should not follow one."""
    leads = np.flatnonzero(octets >= 0xC0)
    lead = octets[leads]
    following = 1 + (lead >= 0xE0).astype(np.int64) + (lead >= 0xF0)
    is_cut = leads + following >= offsets[_numbers_of(leads, offsets) + 1]
    should_follow = np.zeros(len(octets), bool)
    for n in (1, 2, 3):
        should_follow[leads[~is_cut & (following >= n)] + n] = True
    is_wrong = should_follow != ((octets & 0xC0) == 0x80)
    second = octets[np.minimum(leads + 1, len(octets) - 1)]
    is_wrong[leads[is_cut | _are_bad_leads(lead, second)]] = True
    return np.flatnonzero(is_wrong)


def _are_bad_leads(lead: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return where two bytes begin a character longer than need be, a surrogate, or one past U+10FFFF."""
    too_long = (lead < 0xC2) | ((lead == 0xE0) & (second < 0xA0)) | ((lead == 0xF0) & (second < 0x90))
    too_high = (lead > 0xF4) | ((lead == 0xF4) & (second > 0x8F))
    surrogate = (lead == 0xED) & (second > 0x9F)
    return np.asarray(too_long | too_high | surrogate)
