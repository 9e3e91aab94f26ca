"""Where spans go: to whoever the variables of OpenTelemetry (`OTEL_...`) name, over OTLP and HTTP."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from tandembus.config import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

MISSING: Final = "tracing needs OpenTelemetry: pip install 'tandembus[otel]'"


def check_can_trace() -> None:
    """Raises ConfigurationError where OpenTelemetry is not installed."""
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter
        import opentelemetry.sdk.trace  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(MISSING) from error


def new_provider(process: str) -> TracerProvider:
    """`process`: which one of the namespace."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    attributes = {"service.instance.id": process}
    if "OTEL_SERVICE_NAME" not in os.environ:
        attributes["service.name"] = "tandembus"
    provider = TracerProvider(resource=Resource.create(attributes))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
