"""The standard variables of OTLP exporters."""

import os
from collections.abc import Mapping


def setting(signal: str, name: str, environment: Mapping[str, str]) -> str:
    """OTEL_EXPORTER_OTLP_TRACES_ENDPOINT and its like, or else the variable for all signals; empty when unset."""
    of_signal = environment.get(f"OTEL_EXPORTER_OTLP_{signal}_{name}", "")
    return of_signal or environment.get(f"OTEL_EXPORTER_OTLP_{name}", "")


def metrics_wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Only when asked for by name: a Jaeger at OTEL_EXPORTER_OTLP_ENDPOINT takes no metrics, and would refuse them."""
    return environment.get("OTEL_METRICS_EXPORTER", "").strip().lower() == "otlp" or bool(
        environment.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    )


def endpoint(environment: Mapping[str, str] = os.environ) -> str | None:
    """Where spans are to be sent, or None when no collector is configured."""
    if environment.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() == "none":
        return None
    return setting("TRACES", "ENDPOINT", environment) or None
