"""Templates of a report, and data as JSON that is safe inside HTML."""

from __future__ import annotations

import json
import math
import re
from importlib import resources
from typing import Any

import numpy as np


def template(name: str) -> str:
    return (resources.files("exactmeans.reporting") / "templates" / name).read_text("utf-8")


def filled(template: str, parts: dict[str, str]) -> str:
    """The template with its {{names}} replaced, in one pass: inserted text is not replaced."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def script_json(data: Any) -> str:
    """JSON that can stand inside a <script> element: no markup can begin or end in it."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for odd in "<>&\u2028\u2029":
        text = text.replace(odd, f"\\u{ord(odd):04x}")
    return text.encode("utf-8", errors="replace").decode()  # lone surrogates have no UTF-8


def number(value: Any) -> float | None:
    """Six digits; None for what JSON has no number for."""
    value = float(value)
    return float(f"{value:.6g}") if math.isfinite(value) else None


def numbers(values: Any) -> list[float | None]:
    return [number(value) for value in np.asarray(values).tolist()]
