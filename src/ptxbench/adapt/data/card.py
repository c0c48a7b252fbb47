"""The data card: a README with the metadata that `datasets` reads."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from ptxbench.adapt.data.build import Built
from ptxbench.adapt.data.statistics import Statistics


def data_card(built: Built, digest: str, statistics: Statistics) -> str:
    """The card in Markdown, with a YAML head that names the files of each split."""
    environment = Environment(
        loader=PackageLoader("ptxbench.adapt.data", "pages"), undefined=StrictUndefined, autoescape=False,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    return environment.get_template("card.md.j2").render(recipe=built.recipe, digest=digest, s=statistics)
