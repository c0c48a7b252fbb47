"""Writes versions and digests of all parts to ``part_versions.toml``; run it after a part and its version changed."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ptxbench.prompts import load_parts

if __name__ == "__main__":
    rows = [
        f'[{part.name}]\nversion = {part.version}\nsha256 = "{hashlib.sha256(part.template.encode()).hexdigest()}"\n'
        for part in load_parts().values()
    ]
    Path(__file__).with_suffix(".toml").write_text("\n".join(rows))
