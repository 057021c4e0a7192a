"""The qdisc `rapid` in a kernel of its own: what receivers reject with each order of its packets.

A sender, a router that loses packets, and a receiver are network namespaces of one kernel in virtual time.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from uml import DEBUG, build_module, run

from dumbbell.analysis import Budget, Paws
from dumbbell.ingest.capture import Capture
from playbooks import REPOSITORY

pytestmark = pytest.mark.kernels

HERE = Path(__file__).parent
# Its routes acknowledge each segment at once, with timestamps in microseconds: these only where asked for.
WORLD = """
HERE={here} RATE_MBIT=100 QUEUE={room} BURST=1600 DELAY_MS={delay_ms}
. $HERE/path.sh
for of in sender,198.18.2.0/24,198.18.1.1,out receiver,198.18.1.0/24,198.18.2.1,in; do
    set -- $(echo $of | tr , " ")
    case $1 in {usec_ts}) ;; *) ip -n $1 route replace $2 via $3 dev $4 ;; esac
done
for of in sender,out router,left router,right receiver,in; do
    ip -n ${{of%,*}} link set dev ${{of#*,}} gso_max_segs 1
done
insmod ./sch_rapid.ko {parameters}
"""
LOSS = "tc -n router qdisc replace dev right root netem delay 5ms loss {loss} limit 10000"
TRANSFER = """
captures=
capture() {{
    : >$2.said
    ip netns exec router tcpdump -i $1 -p -n -s 128 -B 8192 -Z root --time-stamp-precision nano -w $2 \
        2>$2.said &
    captures="$captures $!"
    until grep -q '^tcpdump: listening' $2.said; do sleep 0.1; done
}}
{load}
tc -n sender qdisc add dev out root rapid
capture left before.pcap
capture right behind.pcap
ip netns exec receiver iperf3 -s -1 -p 5201 >server.said &
sleep 0.5
{beside}
ip netns exec sender iperf3 -c 198.18.2.11 -p 5201 -t {seconds} -C {control} --json >iperf3.json
sleep 3 # in which tcpdump is given the last packets
for of in sender receiver; do
    ip netns exec $of cat /proc/net/netstat /proc/net/snmp >$of.netstat
done
tc -n router -s -j qdisc show dev right >router.json
tc -n sender -s -j qdisc show dev out >sender.json
tc -n sender -s qdisc show dev out
ip netns exec sender ./dumbbell-collect qdisc --interval 10ms --duration 10ms >collected 2>/dev/null
kill $captures
wait
"""


@dataclass(frozen=True)
class Found:
    """What a transfer left behind."""

    work: Path

    def netstat(self, host: str) -> dict[str, int]:
        """Counters of a host by their names in netstat's tables."""
        found: dict[str, int] = {}
        lines = (self.work / f"{host}.netstat").read_text().splitlines()
        for names, values in zip(lines[::2], lines[1::2], strict=True):
            group, *heads = names.split()
            found |= {group[:-1] + name: int(n) for name, n in zip(heads, values.split()[1:], strict=True)}
        return found

    def json(self, name: str) -> Any:
        """A file of JSON."""
        return json.loads((self.work / name).read_text())

    @property
    def rapid(self) -> dict[str, int]:
        """The qdisc's own counters, as Dumbbell's collector reads them."""
        (row, *_) = (
            line for line in (self.work / "collected").read_text().splitlines() if "kind=rapid" in line
        )
        return {name: int(value) for name, value in re.findall(r"[ ,](\w+)=(\d+)i", row)}

    @property
    def budget(self) -> Budget:
        """Of what the sender sent again."""
        sender, receiver = self.netstat("sender"), self.netstat("receiver")
        return Budget(
            retransmits=sender["TcpRetransSegs"],
            drops=self.sent("before") - self.sent("behind"),
            rejects=receiver["TcpExtPAWSEstab"],
            duplicates=sender["TcpExtTCPDSACKRecvSegs"],
        )

    def sent(self, where: str) -> int:
        """Segments from the sender at a place of the path: those of TCP, whatever else was dropped."""
        blocks = Capture.open(self.work / f"{where}.pcap").segments()
        return sum(block.filter(src="198.18.1.11").height for block in blocks)

    def paws(self, where: str) -> Paws:
        """What a capture tells."""
        paws = Paws()
        for segments in Capture.open(self.work / f"{where}.pcap").segments():
            paws.feed(segments)
        return paws

    @property
    def mbit(self) -> float:
        """What arrived, in Mbit/s."""
        return float(self.json("iperf3.json")["end"]["sum_received"]["bits_per_second"]) / 1e6

    def told(self, what: str) -> str:
        """All of it in a line, for who reads the test's output."""
        behind = self.paws("behind")
        return (
            f"{what}: {self.mbit:.1f} Mbit/s {self.budget} residual {self.budget.residual:g} "
            f"{self.budget.verdict}; behind {behind.rejected.total()}, backwards {behind.backwards}, before "
            f"{self.paws('before').rejected.total()}; {self.rapid}"
        )


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with the modules, built without warnings, and with the collectors."""
    into = tmp_path_factory.mktemp("modules")
    for name in ("sch_rapid", "tcp_rapid"):
        build_module(REPOSITORY / "modules" / name, into)
    shutil.copy(REPOSITORY / ".build/bin/dumbbell-collect", into)
    return into


Transfer = Callable[..., Found]


@pytest.fixture(scope="module")
def transfer(modules: Path, tmp_path_factory: pytest.TempPathFactory) -> Transfer:
    """A transfer over a path that loses some packets, with the sender's queue in an order."""

    def transferred(
        queue: str,
        control: str = "bbr",
        *,
        seconds: int = 8,
        path: str = LOSS.format(loss="0.1%"),
        room: int = 200,
        delay_ms: int = 5,
        usec_ts: str = "none",
        beside: str = "",
        **parameters: int,
    ) -> Found:
        work = tmp_path_factory.mktemp(f"{queue}_{control}")
        for file in modules.iterdir():
            shutil.copy(file, work)
        asked = {"queue": queue, "rate": 100_000_000} | parameters
        words = " ".join(f"{name}={value}" for name, value in asked.items())
        world = WORLD.format(here=HERE, room=room, delay_ms=delay_ms, usec_ts=usec_ts, parameters=words)
        load = "insmod ./tcp_rapid.ko" if control == "rapid" else f"modprobe tcp_{control}"
        script = TRANSFER.format(load=load, beside=beside, seconds=seconds, control=control)
        run(f"{world}\n{path}\n{script}", work, virtual=True, timeout_s=300)
        found = Found(work)
        print(found.told(f"{control}, {words}"))
        return found

    return transferred


@pytest.fixture(scope="module")
def buggy(transfer: Transfer) -> Found:
    return transfer("buggy")


@pytest.fixture(scope="module")
def fifo(transfer: Transfer) -> Found:
    return transfer("fifo")


@pytest.fixture(scope="module")
def restamp(transfer: Transfer) -> Found:
    return transfer("restamp")


def test_retransmissions_first_are_rejected_by_the_receiver(buggy: Found) -> None:
    budget = buggy.budget
    assert budget.rejects > 0
    assert budget.retransmits >= 3 * budget.drops > 0
    assert budget.unexplained < 0.1
    assert budget.verdict == "overtaken"
    assert buggy.rapid["jumped"] > 0
    assert buggy.rapid["ts_regressions"] >= budget.rejects


def test_a_capture_tells_the_same(buggy: Found) -> None:
    for where, off in (("before", 0.1), ("behind", 0.02)):  # some of those before the path do not arrive
        paws = buggy.paws(where)
        assert paws.verdict == buggy.budget.verdict
        assert paws.rejected.total() == pytest.approx(buggy.budget.rejects, rel=off)
        assert paws.backwards >= paws.rejected.total()
        assert paws.first


def test_in_order_nothing_is_rejected(fifo: Found) -> None:
    budget = fifo.budget
    assert budget.drops == sum(qdisc["drops"] for qdisc in fifo.json("router.json"))
    assert (budget.rejects, budget.duplicates, budget.verdict) == (0, 0, "not overtaken")
    assert budget.retransmits == budget.drops > 0
    assert fifo.rapid["retrans"] == budget.retransmits
    assert (fifo.rapid["jumped"], fifo.rapid["ts_regressions"], fifo.rapid["restamped"]) == (0, 0, 0)
    for where in ("before", "behind"):
        paws = fifo.paws(where)
        assert (paws.rejected.total(), paws.backwards, paws.verdict) == (0, 0, "not overtaken")


def test_new_timestamps_are_accepted_and_yet_segments_come_twice(restamp: Found) -> None:
    budget = restamp.budget
    assert (budget.rejects, budget.verdict) == (0, "not overtaken")
    assert budget.duplicates > 0
    assert budget.retransmits > budget.drops
    assert (restamp.rapid["jumped"] > 0, restamp.rapid["restamped"] > 0) == (True, True)
    assert restamp.rapid["ts_regressions"] == 0
    assert restamp.paws("before").backwards == 0


def test_the_queue_sends_at_its_rate_and_keeps_its_limit(fifo: Found, transfer: Transfer) -> None:
    assert 80 < fifo.mbit < 100 * 1448 / 1514
    short = transfer("fifo", "cubic", seconds=2, path="", limit=20)
    (own,) = short.json("sender.json")
    assert short.rapid["maxq"] == 20
    assert own["drops"] > 0


# Its gaps are those of the queue, as the original's were; only the receiver's timestamps are microseconds.
RAPID = {"control": "rapid", "usec_ts": "receiver", "gap": 1}
# On from 2 to 4 s and from 6 to 8 s of the transfer, and so on.
ON_OFF = "for _ in 1 2 3; do sleep 2; ip netns exec router $within cbr 198.18.2.11 50 2; done &"


@pytest.mark.parametrize(("queue", "told"), [("buggy", "overtaken"), ("fifo", "not overtaken")])
def test_rapid_over_a_path_that_loses(transfer: Transfer, queue: str, told: str) -> None:
    lossy = "tc -n router qdisc replace dev right root netem delay 5ms loss 0.1% rate 100mbit limit 1000"
    found = transfer(queue, seconds=12, path=lossy, **RAPID)
    assert (found.budget.verdict, found.paws("behind").verdict) == (told, told)


@pytest.mark.parametrize(("queue", "told"), [("buggy", "overtaken"), ("fifo", "not overtaken")])
def test_rapid_beside_udp_that_comes_and_goes(transfer: Transfer, queue: str, told: str) -> None:
    found = transfer(queue, seconds=12, path="", beside=ON_OFF, **RAPID)
    assert (found.budget.verdict, found.paws("behind").verdict) == (told, told)
    if queue == "fifo":
        assert found.budget.rejects == found.paws("behind").backwards == 0
        assert found.budget.retransmits == pytest.approx(found.budget.drops, rel=0.02)


# Of rapid long enough that what is rejected at the end, and not sent again any more, is little of it.
OTHERS: dict[str, dict[str, Any]] = {
    "scalable": {"loss": "0.05%", "rate": 60_000_000},
    "illinois": {"loss": "0.3%", "rate": 80_000_000},
    "rapid": {"loss": "0.2%", "rate": 40_000_000, "usec_ts": "sender|receiver", "gap": 1, "seconds": 40},
}


@pytest.mark.parametrize("queue", ["buggy", "fifo"])
@pytest.mark.parametrize("control", OTHERS)
def test_counters_and_captures_tell_the_same(transfer: Transfer, queue: str, control: str) -> None:
    """Whatever it is: of some, losses are most of what is sent again."""
    asked = dict(OTHERS[control])
    netem = f"netem delay 15ms loss {asked.pop('loss')} rate {asked['rate']} limit 1000"
    path = f"tc -n router qdisc replace dev right root {netem}"
    found = transfer(queue, control, path=path, delay_ms=15, **asked)
    behind = found.paws("behind")
    assert behind.verdict == found.budget.verdict
    assert behind.rejected.total() == pytest.approx(found.budget.rejects, rel=0.05, abs=1)
    assert found.budget.unexplained < 0.1
    if queue == "fifo":
        assert found.budget.rejects == behind.backwards == 0


CHURN = """
tc -n router qdisc replace dev right root pfifo
ip netns exec receiver iperf3 -s -p 5201 >server.said &
server=$!
sleep 0.5
ip netns exec sender iperf3 -c 198.18.2.11 -p 5201 -t 600 >client.said 2>&1 &
client=$!
ip netns exec sender $within raw 198.18.2.11 &
raw=$!
rmmod sch_rapid
sleep 0.5
i=0
while [ $i -lt 1000 ]; do
    insmod ./sch_rapid.ko queue=buggy rate=30000000 gap=$((i % 2)) fair=$((i / 2 % 2))
    tc -n sender qdisc add dev out root rapid
    sleep 0.05
    if [ $((i % 100)) = 0 ]; then
        tc -n sender -s qdisc show dev out
        rmmod sch_rapid && exit 1
    fi
    tc -n sender qdisc del dev out root
    rmmod sch_rapid
    i=$((i + 1))
done
kill $client $server $raw
wait
echo loaded $i times
"""


def test_a_thousand_loads_under_traffic(tmp_path: Path) -> None:
    """Packets wait in it whenever it is removed, and it cannot be unloaded before."""
    build_module(REPOSITORY / "modules" / "sch_rapid", tmp_path, DEBUG)
    world = WORLD.format(here=HERE, room=200, delay_ms=5, usec_ts="none", parameters="")
    said = run(world + CHURN, tmp_path, virtual=True, kernel=DEBUG, timeout_s=3600)
    assert said.rstrip().endswith("loaded 1000 times")
    assert said.count("Module sch_rapid is in use") == 10
    sent = [int(packets) for packets in re.findall(r"Sent \d+ bytes (\d+) pkt", said)]
    waiting = [int(packets) for packets in re.findall(r"backlog \S+ (\d+)p", said)]
    print(sent, waiting)
    assert min(sent) > 0 < max(waiting)
