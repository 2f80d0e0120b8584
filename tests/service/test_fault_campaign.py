"""The campaign of faults, a few kinds of it: nothing is lost, nothing stale is served as live."""

from tools.faults import Tally, main, table

KINDS = "SIGKILL|tegrastats (half|cut|implausible)|workload crash|daemon killed"


def test_few_faults_lose_nothing(capsys):
    assert main(["--faults", "6", "--only", KINDS]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 8
    *_, total = rows
    injected, survived, finished, lost, stale = map(int, total.split()[1:6])
    assert (injected, survived, lost, stale) == (6, 6, 0, 0)
    assert finished > 0


def test_table_sums_up():
    rows = table({"a": Tally(1, 1, 5, 0, 2, [0.5]), "b": Tally(2, 1, 3, 1, 0, [1.5])})
    assert rows.splitlines()[-1].split() == [
        "all",
        "3",
        "2",
        "8",
        "1",
        "2",
        "1.00",
        "/",
        "1.50",
        "s",
    ]
