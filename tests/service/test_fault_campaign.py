"""The campaign of faults, a few kinds of it: nothing is lost, nothing stale is served as live."""

from tools.faults.__main__ import kinds, main, table
from tools.faults.kinds import Tally

# None of those that look for a traceback: other programs of the machine may cause one.
KINDS = (
    "tegrastats (SIGKILL|half|cut|implausible)|workload crash|daemon killed"
    "|open store: (cut to 3 pages|removed)"
)


def test_few_faults_lose_nothing(capsys):
    assert main(["--faults", "8", "--only", KINDS]) == 0, capsys.readouterr()
    rows = capsys.readouterr().out.splitlines()
    total = next(row for row in rows if row.startswith("all "))
    injected, survived, finished, told, _, lost, stale = map(int, total.split()[1:8])
    assert (injected, survived, lost, stale) == (8, 8, 0, 0)
    assert finished >= told > 0


def test_campaign_has_a_hundred_kinds_each_with_its_own_name(capsys):
    names = [kind.name for kind in kinds()]
    assert len(names) == len(set(names)) >= 100
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.splitlines()[:-1] == names


def test_table_sums_up():
    first = Tally(1, 1, 5, 5, 1, 0, 2, [0.5])
    second = Tally(2, 1, 3, 2, 0, 1, 0, [1.5])
    total = table({"a": first, "b": second}).splitlines()[-1]
    assert total.split() == ["all", *["3", "2", "8", "7", "1", "1", "2", "1.00", "/", "1.50", "s"]]
