"""The trace of atou's sender, of each segment and ACK, as a table."""

from __future__ import annotations

import polars as pl

_US_PER_S, _NS_PER_US = 1_000_000, 1000
_SENT, _ACKED = 3, 6  # words of a line


def parse_trace(text: str) -> pl.DataFrame:
    """Read a trace into ``[t_ns, kind, segment, rtt_ns, snd_cwnd, snd_ssthresh]``, in its order.

    ``t_ns`` is since the flow's start, in whole microseconds. ``kind`` is ``ack``, whose segment is
    the first missing one, or how a segment was sent (``xmt``), where the last three are null. The format
    is in transports/atou/README.md. An incomplete last line is left out. Raises ValueError if another line is
    malformed.
    """
    words = pl.Series("words", text.split("\n")[:-1], pl.String).str.split(" ").to_frame()
    count = pl.col("words").list.len()
    acked = (count == _ACKED) & (pl.col("words").list.last() == "ack")
    wrong = words.with_row_index("line", 1).filter(~acked & (count != _SENT))
    if not wrong.is_empty():
        line, found = wrong.row(0)
        raise ValueError(f"line {line} of a trace has neither {_SENT} words nor {_ACKED}: {' '.join(found)}")

    def word(number: int) -> pl.Expr:
        return pl.col("words").list.get(number, null_on_oob=True)

    try:
        return words.select(
            t_ns=_ns(word(0)),
            kind=word(-1),
            segment=word(1).cast(pl.Int64),
            rtt_ns=_ns(pl.when(acked).then(word(2))),
            snd_cwnd=word(3).cast(pl.Int64),
            snd_ssthresh=word(4).cast(pl.Int64),
        )
    except pl.exceptions.InvalidOperationError as error:
        raise ValueError(f"a trace has words that are no numbers: {error}") from error


def _ns(seconds: pl.Expr) -> pl.Expr:
    return (seconds.cast(pl.Float64) * _US_PER_S).round().cast(pl.Int64) * _NS_PER_US
