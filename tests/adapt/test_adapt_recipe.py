from __future__ import annotations

from pathlib import Path

import pytest

from ptxbench.adapt import load_recipe
from ptxbench.core import UsageError

ROOT = Path(__file__).parent.parent.parent
MINIMAL = 'name = "x"\nkind = "expert"\n'


@pytest.mark.parametrize("name", ["expert", "repair"])
def test_the_recipes_of_the_repository_are_valid(name: str) -> None:
    recipe = load_recipe(ROOT / "recipes" / f"{name}.toml")
    assert recipe.name == recipe.kind == name
    assert not recipe.evaluation_tasks
    assert recipe.validation


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = ", "is not TOML"),
        (MINIMAL + "colour = 1\n", "wrong at colour"),
        ('name = "x"\nkind = "other"\n', "wrong at kind"),
        (MINIMAL + "[gates]\nduplicate = 2.0\n", r"wrong at gates\.duplicate"),
        (MINIMAL + 'validation = ["gem_f16"]\n', "unknown task 'gem_f16'"),
        (MINIMAL + 'conditions = { headers = "nothing" }\n', "unknown prompt condition 'nothing'"),
        (MINIMAL + "[faults]\nminimum = { broken = 2 }\n", "unknown kinds of failure: broken"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=words) as caught:
        load_recipe(path)
    assert "\n" not in str(caught.value)


def test_a_missing_or_binary_recipe(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the recipe"):
        load_recipe(tmp_path / "none.toml")
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        load_recipe(path)
