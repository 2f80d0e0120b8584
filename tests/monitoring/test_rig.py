"""The rig itself: what the other tests lean on holds."""

from tests.monitoring.prometheus import needs_prometheus


@needs_prometheus
def test_a_server_that_is_started_again_is_where_it_was(monitoring):
    """Two never share a port, and a restart keeps port and directory; the end ends all."""
    first, second = (monitoring.prometheus("global: {}\n") for _ in range(2))
    assert first.address != second.address
    before, process = first.address, first.process
    first.stop()
    assert process.poll() is not None
    first.restart()
    assert first.address == before
    assert first.value("vector(7)") == 7
    monitoring.stop()
    assert [one.process.poll() is None for one in (first, second)] == [False, False]
