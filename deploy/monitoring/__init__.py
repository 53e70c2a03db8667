"""Watching gangd: a dashboard for Grafana and alert rules for Prometheus; ``docs/monitoring.md`` says how."""
