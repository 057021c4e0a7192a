"""Times at the beginning of lines, as date(1), ts(1) of moreutils, and watch(1) write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = rf"(?P<name>{'|'.join(_MONTHS)})"
_DAY = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? +)"
_ZONE = r"(?P<zone>Z|UTC|GMT|[+-]\d\d:?\d\d)"
_PATTERNS = [
    re.compile(rf"{pattern}(?=\s|$)")
    for pattern in (
        # date +%s, %s.%N, %s%N; ts %s, %.s
        r"(?P<epoch>\d{10})(?:[.,]?(?P<fraction>\d{1,9}))?",
        # date -I..., date --rfc-3339, ts %FT%T
        rf"(?P<year>\d{{4}})-(?P<month>\d\d)-(?P<day>\d\d)[T ]{_CLOCK} ?{_ZONE}?",
        # date, in the C locale and in English
        rf"{_DAY}{_MONTH} +(?P<day>\d{{1,2}}) +{_CLOCK}(?: (?P<half>[AP]M))?(?: (?:{_ZONE}|[A-Z]{{3,5}}))?"
        r" (?P<year>\d{4})",
        rf"{_DAY}(?P<day>\d{{1,2}}) {_MONTH} (?P<year>\d{{4}}) {_CLOCK}(?: (?P<half>[AP]M))?"
        rf"(?: (?:{_ZONE}|[A-Z]{{3,5}}))?",
        # ts, and ts %H:%M:%S, ts -s
        rf"{_MONTH} +(?P<day>\d{{1,2}}) {_CLOCK}",
        _CLOCK,
    )
]
_WATCH = re.compile(rf"Every [\d.,]+s: .*?(?P<date>{_DAY}.*)")
_NO_YEAR = 1972  # of times without one; it has a 29th of February
_NO_DATE = datetime(1970, 1, 1, tzinfo=UTC)
_FORENOON = timedelta(hours=12)


class Clock:
    """Reads times in the order of a file. ``dated`` is False if a line had no year, and so no date."""

    def __init__(self) -> None:
        self.dated = True
        self._last: datetime | None = None

    def read(self, line: str) -> tuple[int, str] | None:
        """The time (ns since 1970) at the beginning of a line, and the rest; None if there is none.

        Without a year or a day, only differences are right: a time before the last one is of the next year
        or day. ValueError if the numbers are no time.
        """
        if (watched := _WATCH.match(line)) is not None:
            line = watched["date"]
        for pattern in _PATTERNS:
            if (match := pattern.match(line)) is not None:
                return self._time_ns(match.groupdict()), line[match.end() :]
        return None

    def _time_ns(self, told: dict[str, str | None]) -> int:
        fraction_ns = int((told["fraction"] or "").ljust(9, "0"))
        if epoch := told.get("epoch"):
            return int(epoch) * 10**9 + fraction_ns
        hour = int(told["hour"] or 0)
        if half := told.get("half"):
            hour = hour % 12 + (12 if half == "PM" else 0)
        month = _MONTHS.index(told["name"] or "") + 1 if told.get("name") else int(told.get("month") or 1)
        known = told.get("year") is not None
        last = self._last or _NO_DATE
        at = datetime(
            int(told.get("year") or (max(last.year, _NO_YEAR) if told.get("day") else last.year)),
            month if told.get("day") else last.month,
            int(told.get("day") or last.day),
            hour,
            int(told["minute"] or 0),
            min(int(told["second"] or 0), 59),  # a leap second
            tzinfo=UTC,
        )
        if not known:
            self.dated = False
            if self._last is not None and at < self._last - _FORENOON:
                at = at.replace(year=at.year + 1) if told.get("day") else at + timedelta(days=1)
            self._last = at
        if (zone := told.get("zone")) and zone[0] in "+-":
            east = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
            at -= east if zone[0] == "+" else -east
        return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000 + fraction_ns
