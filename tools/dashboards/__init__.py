"""What Grafana shows of tegrascope, written down once; ``make dashboards`` renders it.

``catalog`` lists the dashboards, each in modules of its own, in the words of ``parts``; ``queries``
is the PromQL that they share. ``render`` and ``panels`` alone know Grafana's own types.
"""
