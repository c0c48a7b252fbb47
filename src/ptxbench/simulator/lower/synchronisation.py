"""Barriers, mbarriers, fences, and what concerns a warp's registers and launches."""

from __future__ import annotations

from typing import Final

from ptxbench.simulator.lower.image import LoweredInstruction
from ptxbench.simulator.lower.site import NONE, Rules, Site
from ptxbench.simulator.lower.spaces import SCOPES, SHARED, Space, result

_REDUCTIONS: Final = {"popc": 0, "and": 1, "or": 2}


def _bar(site: Site) -> LoweredInstruction:
    if site.take("warp"):
        site.expect("sync")
        (mask,) = site.arguments(1)
        return site.emit("bar.warp", site.source(mask, "b32"))
    return _barrier(site)


def _barrier(site: Site) -> LoweredInstruction:
    if site.take("cluster"):
        return _cluster_barrier(site)
    site.take("cta")
    site.take("aligned")
    action = site.choose(("sync", "arrive", "red"))
    if action == "red":
        return _barrier_reduction(site)
    barrier, *count = site.arguments(2) if action == "arrive" else site.arguments(1, 2)
    threads = site.source(count[0], "u32") if count else NONE
    return site.emit(f"bar.{action}", site.source(barrier, "u32"), threads)


def _barrier_reduction(site: Site) -> LoweredInstruction:
    reduction = site.pick(_REDUCTIONS)
    type_name = site.choose(("u32", "pred"))
    d, barrier, *count, predicate = site.arguments(3, 4)
    threads = site.source(count[0], "u32") if count else NONE
    return site.emit(
        "bar.red", result(site, d, type_name), site.source(barrier, "u32"), threads,
        site.source(predicate, "pred"), attributes=[reduction],
    )  # fmt: skip


def _cluster_barrier(site: Site) -> LoweredInstruction:
    action = site.choose(("arrive", "wait"))
    relaxed = site.choose(("release", "relaxed") if action == "arrive" else ("acquire",), "default") == "relaxed"
    site.take("aligned")
    site.arguments(0)
    return site.emit(f"cluster.{action}", attributes=[relaxed])


def _mbarrier(site: Site) -> LoweredInstruction:
    action = site.choose(tuple(_MBARRIER))
    return _MBARRIER[action](site)


def _init(site: Site) -> LoweredInstruction:
    space = _object(site)
    a, count = site.arguments(2)
    return site.emit("mbarrier.init", site.memory(a), site.source(count, "u32"), attributes=[space])


def _inval(site: Site) -> LoweredInstruction:
    space = _object(site)
    (a,) = site.arguments(1)
    return site.emit("mbarrier.inval", site.memory(a), attributes=[space])


def _arrive(site: Site) -> LoweredInstruction:
    return _arrival(site, drop=False)


def _arrive_drop(site: Site) -> LoweredInstruction:
    return _arrival(site, drop=True)


def _arrival(site: Site, *, drop: bool) -> LoweredInstruction:
    expect_tx = site.take("expect_tx")
    no_complete = site.take("noComplete")
    relaxed = _semantics(site)
    space = _object(site)
    required = expect_tx or no_complete
    state, a, *rest = site.arguments(3) if required else site.arguments(2, 3)
    extra = site.source(rest[0], "u32") if rest else NONE
    count, tx = (NONE, extra) if expect_tx else (extra, NONE)
    attributes = [space, drop, no_complete, relaxed]
    return site.emit(
        "mbarrier.arrive", site.destination(state, "b64"), site.memory(a), count, tx, attributes=attributes
    )


def _expect_tx(site: Site) -> LoweredInstruction:
    return _transaction(site, "mbarrier.expect_tx")


def _complete_tx(site: Site) -> LoweredInstruction:
    return _transaction(site, "mbarrier.complete_tx")


def _transaction(site: Site, op: str) -> LoweredInstruction:
    _semantics(site)
    space = _object(site)
    a, tx = site.arguments(2)
    return site.emit(op, site.memory(a), site.source(tx, "u32"), attributes=[space])


def _test_wait(site: Site) -> LoweredInstruction:
    return _wait(site, blocking=False)


def _try_wait(site: Site) -> LoweredInstruction:
    return _wait(site, blocking=True)


def _wait(site: Site, *, blocking: bool) -> LoweredInstruction:
    parity = site.take("parity")
    relaxed = _semantics(site)
    space = _object(site)
    done, a, phase, *_ = site.arguments(3, 4) if blocking else site.arguments(3)
    token = site.source(phase, "b32" if parity else "b64")
    return site.emit(
        "mbarrier.wait", site.destination(done, "pred"), site.memory(a), token,
        attributes=[space, parity, blocking, relaxed],
    )  # fmt: skip


def _pending_count(site: Site) -> LoweredInstruction:
    site.expect("b64")
    d, state = site.arguments(2)
    return site.emit("mbarrier.pending_count", result(site, d, "u32"), site.source(state, "b64"))


def _object(site: Site) -> Space:
    site.expect("b64")
    return site.pick(SHARED, Space.GENERIC)


def _semantics(site: Site) -> bool:
    """Whether the operation is relaxed: it orders nothing else."""
    relaxed = site.choose(("acquire", "release", "relaxed"), "default") == "relaxed"
    site.choose(("cta", "cluster"), "cta")
    return relaxed


_MBARRIER: Final = {
    "init": _init,
    "inval": _inval,
    "arrive": _arrive,
    "arrive_drop": _arrive_drop,
    "expect_tx": _expect_tx,
    "complete_tx": _complete_tx,
    "test_wait": _test_wait,
    "try_wait": _try_wait,
    "pending_count": _pending_count,
}


def _fence(site: Site) -> LoweredInstruction:
    if site.take("proxy"):
        return _proxy_fence(site)
    if site.take("mbarrier_init"):
        site.expect("release", "cluster")
        return site.emit("fence.init")
    site.choose(("sc", "acq_rel", "acquire", "release"), "acq_rel")
    site.match(r"sync_restrict::shared::(cta|cluster)")
    return site.emit("fence" if site.choose(SCOPES) == "cta" else "fence.init")


def _proxy_fence(site: Site) -> LoweredInstruction:
    kind = site.choose(("async", "async::generic", "alias", "tensormap::generic"))
    if kind == "async":
        space = site.choose(("global", "shared::cta", "shared::cluster"), "all")
        return site.emit("fence.proxy.async", attributes=[space != "global", space in ("global", "all")])
    acquires = False
    if kind != "alias":
        acquires = site.choose(("acquire", "release")) == "acquire"
        site.match(r"sync_restrict::shared::(cta|cluster)")
        site.choose(SCOPES)
    if kind == "tensormap::generic" and acquires:
        address, _ = site.arguments(2)
        return site.emit("fence.tensormap", site.memory(address))
    return site.emit("fence")


def _membar(site: Site) -> LoweredInstruction:
    if site.take("proxy"):
        site.expect("alias")
        return site.emit("fence")
    return site.emit("fence" if site.choose(("cta", "gl", "sys")) == "cta" else "fence.init")


def _setmaxnreg(site: Site) -> LoweredInstruction:
    increase = site.choose(("inc", "dec")) == "inc"
    site.expect("sync", "aligned", "u32")
    (operand,) = site.arguments(1)
    registers = site.integer(operand)
    if registers % 8 or not 24 <= registers <= 256:
        site.refuse("the register count must be a multiple of 8 from 24 to 256")
    return site.emit("setmaxnreg", attributes=[increase, registers])


def _griddepcontrol(site: Site) -> LoweredInstruction:
    """Launches of a plan run one after another, so dependents wait for everything anyway."""
    site.choose(("launch_dependents", "wait"))
    return site.emit("no_effect")


_QUESTIONS: Final = {
    "get_first_ctaid::x": 0, "get_first_ctaid::y": 1, "get_first_ctaid::z": 2, "get_first_ctaid": 3, "is_canceled": 4,
}  # fmt: skip


def _launch_control(site: Site) -> LoweredInstruction:
    if site.choose(("try_cancel", "query_cancel")) == "query_cancel":
        return _query_cancel(site)
    site.expect("async", "mbarrier::complete_tx::bytes", "b128")
    site.take("shared::cta")
    multicast = site.take("multicast::cluster::all")
    answer, barrier = site.arguments(2)
    return site.emit("clc.try", site.memory(answer), site.memory(barrier), attributes=[multicast])


def _query_cancel(site: Site) -> LoweredInstruction:
    question = site.choose(_QUESTIONS)
    site.expect("b128")
    site.expect({"is_canceled": "pred", "get_first_ctaid": "v4"}.get(question, "b32"))
    d, answer = site.arguments(2)
    if question == "is_canceled":
        destinations = [site.destination(d, "pred")]
    elif question == "get_first_ctaid":
        site.expect("b32")
        destinations = site.destinations(d, "b32", 4)
    else:
        destinations = [site.destination(d, "b32")]
    return site.emit("clc.query", destinations, site.source(answer, "b128"), attributes=[_QUESTIONS[question]])


RULES: Final[Rules] = {
    "clusterlaunchcontrol": _launch_control,
    "bar": _bar,
    "barrier": _barrier,
    "fence": _fence,
    "griddepcontrol": _griddepcontrol,
    "mbarrier": _mbarrier,
    "membar": _membar,
    "setmaxnreg": _setmaxnreg,
}
