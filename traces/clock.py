"""The run's clock: wall-clock nanoseconds that never step back."""

import time
from collections.abc import Sequence

_OFFSET_NS = time.time_ns() - time.perf_counter_ns()


def now_ns() -> int:
    """Nanoseconds since the epoch, as `time.time_ns` gives them, but monotonic within this process.

    A clock correction in the middle of a run would otherwise give spans of negative length.
    """
    return time.perf_counter_ns() + _OFFSET_NS


def shift_into(spans: Sequence[tuple[int, int]], start_ns: int, end_ns: int) -> int:
    """How far to shift `spans` (start, end) so that they lie between `start_ns` and `end_ns`; 0 if they do.

    For phases measured on another machine's or sandbox's clock. The order of cause and effect is certain: the
    call was sent before its work began and answered after its work ended. So the least shift that restores it
    is used, and where the work seems longer than the call (drift within it), the centres are laid on each
    other.
    """
    if not spans:
        return 0
    first = min(start for start, _ in spans)
    last = max(end for _, end in spans)
    if last - first > end_ns - start_ns:
        return (start_ns + end_ns - first - last) // 2
    return max(start_ns - first, 0) or min(end_ns - last, 0)
