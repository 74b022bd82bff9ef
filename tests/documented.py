"""What docs/metrics.md says that there is."""

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"


def documented(half: str) -> set[str]:
    """The metrics below one of its headings."""
    section = PAGE.read_text("utf-8").partition(f"## {half}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE))


def offered(registry: CollectorRegistry) -> set[str]:
    """The metrics of a registry, by the names that a scrape has."""
    return {family.name + "_total" * (family.type == "counter") for family in registry.collect()}
