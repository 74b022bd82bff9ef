"""Which content other tenants have sent: counted, for isolation's price is worth knowing, and told to no tenant."""

import hashlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cacheplane.attribution.contents import Keys

SLOTS: Final = 1 << 18  # 3 MiB
_SEVERAL: Final = 0


class Strangers:
    """Content keys of blocks and who sent them, in one table for all tenants.

    Whatever is in the table, `meet` does the same work for the same number of keys: how long it takes depends on the
    prompt alone. Nothing that it returns may reach a tenant.

    Bound: `slots` entries of 12 bytes, a power of two; a later block takes the place of an earlier one.
    """

    def __init__(self, slots: int = SLOTS) -> None:
        self._shift = np.uint64(65 - slots.bit_length())  # a key's highest bits name its place
        self._keys = np.zeros(slots, np.uint64)
        self._owners = np.zeros(slots, np.uint32)

    def meet(self, tenant: str, keys: Keys) -> NDArray[np.bool_]:
        """For each block, whether another tenant is known to have sent it; and `tenant` has sent it now."""
        me = np.uint32(_number(tenant))
        places = (keys >> self._shift).view(np.int64)  # as NumPy indexes
        met = self._keys.take(places) == keys
        others: NDArray[np.bool_] = met & (self._owners.take(places) != me)
        self._keys[places] = keys
        self._owners[places] = np.where(others, np.uint32(_SEVERAL), me)
        return others


def _number(tenant: str) -> int:
    """1 to 2**32 - 1; two tenants share one with a chance of 2**-32, and miss each other in the count then."""
    raw = hashlib.blake2b(tenant.encode("utf-8", "replace"), digest_size=4).digest()
    return int.from_bytes(raw, "little") or 1
