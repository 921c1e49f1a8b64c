"""ro-crate-metadata.json by rocrate-validator, offline: RO-Crate 1.1, all that it requires."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ddnn_traces import extras
from ddnn_traces.release.verify.examined import Examined
from ddnn_traces.release.verify.result import FAILED, PASSED, Result, WrongError
from ddnn_traces.release.verify.untrusted import shown
from ddnn_traces.store import layout

RO_CRATE = "RO-Crate"

_ASK = "ask whoever published it, or publish the dataset again"
_MOST_ISSUES = 10


def check_ro_crate(examined: Examined) -> Iterator[Result]:
    """The validator finds no requirement unmet, with the context that is inlined."""
    document = examined.document(layout.RO_CRATE)
    if not isinstance(document.get("@context"), dict) or "@import" in document["@context"]:
        raise WrongError(f"its context is not inlined, so that reading it would fetch one; {_ASK}")
    services = extras.load("rocrate_validator.services")
    models = extras.load("rocrate_validator.models")
    logging.getLogger("rocrate_validator").setLevel(logging.CRITICAL)
    settings = models.ValidationSettings(
        rocrate_uri=str(examined.content),
        profile_identifier="ro-crate-1.1",
        requirement_severity=models.Severity.REQUIRED,
        offline=True,
        cache_path=examined.scratch / "rocrate",
    )
    try:
        result = services.validate(settings)
    except Exception as error:  # whatever it stumbles over in what others wrote
        raise WrongError(f"rocrate-validator: {shown(error)}; {_ASK}") from None
    if result.passed():
        yield Result(RO_CRATE, layout.RO_CRATE, PASSED, "valid: all that RO-Crate 1.1 requires")
    for issue in [*result.get_issues()][:_MOST_ISSUES]:
        yield Result(RO_CRATE, layout.RO_CRATE, FAILED, f"rocrate-validator: {shown(issue.message)}; {_ASK}")
