"""The rig itself: what the other tests lean on holds."""

from tests.monitoring.prometheus import needs_alertmanager, needs_prometheus, wait_for

RULES = """
groups:
- name: demo
  rules:
  - {alert: Told, expr: 'up == 1', labels: {severity: info}}
"""


@needs_prometheus
@needs_alertmanager
def test_an_alert_gets_from_prometheus_to_the_receiver(monitoring, tmp_path):
    """What fires in the one is told by the other; a restarted server keeps port and data."""
    webhook = monitoring.webhook()
    receiver = {"name": "webhook", "webhook_configs": [{"url": webhook.url}]}
    route = {"receiver": "webhook", "group_wait": "0s", "group_interval": "1s"}
    alertmanager = monitoring.alertmanager({"route": route, "receivers": [receiver]})
    rules = tmp_path / "rules.yml"
    rules.write_text(RULES)
    told = [{"static_configs": [{"targets": [alertmanager.address]}]}]
    prometheus = monitoring.scraping(
        alertmanager.address, rules=[rules], alerting={"alertmanagers": told}
    )
    prometheus.wait_for_scrape()
    (alert, *_) = wait_for(lambda: webhook.alerts(alertname="Told"))
    assert alert["labels"]["instance"] == alertmanager.address
    assert [one["labels"]["severity"] for one in alertmanager.alerts()] == ["info"]
    before = prometheus.address, prometheus.series("up")[0]
    prometheus.stop()
    prometheus.restart()
    assert (prometheus.address, prometheus.series("up")[0]) == before
