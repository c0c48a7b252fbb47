"""Fuzzes the simulator for a while: starts workers one after another, and keeps the case that ended or held one.

python tests/fuzz/fuzz_campaign.py FOLDER --seconds 3600 [--seed 1] [--sanitize] [--out results/cpu/fuzz.json]

The cases in FOLDER/corpus are where it begins and goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from fuzz_build import preload, prepare

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
from benchmarks.mutations.ledger import simulator_digest

LONGEST_CASE_S = 60.0  # of wall time, many times what the limits of a run allow


def one_worker(folder: Path, seed: int, ends: float, *, sanitize: bool) -> str:
    """Runs a worker until it ends, hangs, or the time is over; why it ended, empty in the last case."""
    command = [sys.executable, str(Path(__file__).with_name("fuzz_worker.py")), str(folder), str(seed)]
    command += ["--sanitize"] if sanitize else []
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", **(preload(halt=False) if sanitize else {})}
    current, began = folder / "current.json", time.time()
    current.unlink(missing_ok=True)
    with (folder / "worker.txt").open("w") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None:
                time.sleep(0.2)
                if time.monotonic() > ends:
                    return ""
                # There is no case yet while the corpus is read.
                if current.exists() and time.time() - max(current.stat().st_mtime, began) > LONGEST_CASE_S:
                    return f"hang: no end after {LONGEST_CASE_S:g} s"
        finally:
            process.kill()
            process.wait()
    if process.returncode < 0:
        return f"signal {signal.Signals(-process.returncode).name}"
    return f"exit {process.returncode}"


def keep(folder: Path, why: str) -> None:
    """Moves the case in progress to the defects, with what the worker said."""
    said = (folder / "worker.txt").read_text(errors="replace")[-20_000:]
    current = folder / "current.json"
    (folder / "defects").mkdir(exist_ok=True)
    place = folder / "defects" / f"{time.time_ns()}.json"
    if current.exists():
        current.rename(place)
    place.with_suffix(".txt").write_text(f"{why}\n{said}")


def summary(folder: Path) -> dict[str, object]:
    """Cases, seconds, endings by kind, and what was found."""
    entries = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    endings = Counter(entry["ending"].split(":")[0].split(" ")[0] for entry in entries)
    return {
        "cases": len(entries), "seconds": round(sum(entry["seconds"] for entry in entries)),
        "slowest": max((entry["seconds"] for entry in entries), default=0), "endings": dict(endings.most_common()),
        "different": len({entry["ending"] for entry in entries}),
        "blocks": max((entry["blocks"] for entry in entries), default=0),
        "found": dict(Counter(_found(path.read_text()) for path in (folder / "defects").glob("*.txt")).most_common()),
    }  # fmt: skip


def _found(text: str) -> str:
    """What a sanitizer or an exception said, without numbers but its line."""
    place = re.search(r"(\w+\.[ch]pp:\d+)\S* runtime error: (.*)", text)
    said = f"{place[1]}: {place[2]}" if place else text.strip().splitlines()[-1]
    return re.sub(r"(?<=[ -])\d+", "N", said)


def publish(out: Path, folder: Path, *, sanitize: bool) -> None:
    """Adds a campaign to a file of results."""
    campaigns = json.loads(out.read_text())["campaigns"] if out.exists() else []
    campaigns.append({"simulator": simulator_digest(), "sanitizers": sanitize, **summary(folder)})
    report = {"command": "python tests/fuzz/fuzz_campaign.py", "campaigns": campaigns}
    out.write_text(json.dumps(report, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sanitize", action="store_true", help="sanitizers and coverage")
    parser.add_argument("--worker-seconds", type=float, default=1800.0, help="of one worker")
    parser.add_argument("--out", type=Path, help="also add the summary to this file of results")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # so that the worker ends too
    (options.folder / "corpus").mkdir(parents=True, exist_ok=True)
    if options.sanitize:
        prepare()
    ends, seed = time.monotonic() + options.seconds, options.seed
    while time.monotonic() < ends:
        until = min(ends, time.monotonic() + options.worker_seconds)
        why = one_worker(options.folder, seed, until, sanitize=options.sanitize)
        if why:
            keep(options.folder, why)
            print(f"seed {seed}: {why}", flush=True)
        seed += 1
    print(json.dumps(summary(options.folder), indent=1))
    if options.out:
        publish(options.out, options.folder, sanitize=options.sanitize)


if __name__ == "__main__":
    main()
