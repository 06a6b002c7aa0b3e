"""The dashboard for Grafana: `python -m minillm_serve.server.grafana` writes `dashboard.json`."""
