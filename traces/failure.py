"""How a span says that its work failed."""

from typing import TYPE_CHECKING

from .attributes import plain_text
from .conventions import ERROR_TYPE

if TYPE_CHECKING:
    from opentelemetry.trace import Span


def fail(span: "Span", error_type: str, message: str) -> None:
    """Marks `span` as failed, for a failure that is no exception.

    `error_type` is one of few values (a class, a kind), `message` is for people.
    """
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute(ERROR_TYPE, error_type)
    span.set_status(Status(StatusCode.ERROR, plain_text(message.partition("\n")[0][:300]) or error_type))
