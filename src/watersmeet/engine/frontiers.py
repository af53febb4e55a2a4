"""How a batch moves an operator's frontiers: marks, reports of packing tasks, and control events."""

from __future__ import annotations

from watersmeet.engine.control_events import Event, EventKind
from watersmeet.engine.inbox import Inbox
from watersmeet.engine.specs import OperatorSpec
from watersmeet.kernels.api import FOREVER, NEVER, StepFrontiers
from watersmeet.state.manifest import EVERY, Manifest, PartFrontier


def advance_frontiers(spec: OperatorSpec, manifest: Manifest, inbox: Inbox) -> StepFrontiers:
    """Apply marks, reports and control events, then advance the frontiers of the inputs and of the operator."""
    before, own_before = manifest.frontier, _own(spec, manifest)
    for mark in inbox.marks:
        if mark.frontier != NEVER:
            if mark.part != EVERY and EVERY in manifest.parts.get(mark.input, {}):
                manifest.divide(mark.input, spec.inputs[mark.input].parts)
            manifest.report_frontier(mark.input, mark.part, mark.frontier, bytes(mark.payload).hex())
    for number, report in inbox.reports:
        manifest.report_newest(number, report.newest)
        for name, by in report.counters.items():
            manifest.count(f"{spec.name}.{name}.{spec.inputs[number].source}", by)
    for control in inbox.controls:
        _apply_control(spec, manifest, Event.from_json(bytes(control.payload)))
    lags = {number: input.lag for number, input in enumerate(spec.inputs)}
    excluded = [number for number, input in enumerate(spec.inputs) if not input.holds_back]
    waits = {number: input.waited_for for number, input in enumerate(spec.inputs)}
    manifest.advance(lags, excluded, waits if any(waits.values()) else None)
    return StepFrontiers(before, manifest.frontier, _own(spec, manifest), own_before)


def _own(spec: OperatorSpec, manifest: Manifest) -> tuple[int, ...]:
    return tuple(manifest.own.get(number, NEVER) for number in range(len(spec.inputs)))


def _apply_control(spec: OperatorSpec, manifest: Manifest, event: Event) -> None:
    for number, input in enumerate(spec.inputs):
        if input.source is None or input.is_of_results or not (event.inputs is None or input.source in event.inputs):
            continue
        parts = manifest.parts.setdefault(number, {})
        for name in list(parts) or [""]:
            match event.kind:
                case EventKind.END:
                    manifest.report_frontier(number, name, FOREVER)
                case EventKind.ADVANCE:
                    manifest.report_frontier(number, name, event.frontier - input.lateness)
                case EventKind.IDLE if event.parts is None or name in event.parts:
                    part = parts.setdefault(name, PartFrontier())
                    # a part that reported since its silence was observed is not idle
                    part.idle = event.observed in (None, part.heard * len(spec.buckets))
