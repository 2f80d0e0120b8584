"""Results of measurements: their records, statistics, judgement and pages.

Shared by bench, advise and report. It measures nothing and starts no worker.
"""
