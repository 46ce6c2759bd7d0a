"""What the doctor learns from the control state, and from the weights and models that it names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from collector.control import FILE, Control, ControlUnusable
from gateway.check import Check
from pickwise.settings import Settings
from ranker.models import ModelUnusable, load
from ranker.vectors import load_vectors
from ranker.weights_document import WeightsDocument
from ranker.weights_store import WeightsError, WeightsStore

_WEIGHTS = "weights/"
_MEND_WEIGHTS = "nothing: the next refresh of the weights (setting weights_refresh_s) writes them anew"
_MEND_MODEL = (
    "restore its folder from a backup, a running service takes it then; or train anew (`pickwise train`); "
    "until then what was good before it ranks"
)


def control_check(data_dir: Path) -> Check | None:
    """None where the folder has no control state yet."""
    if not (data_dir / FILE).exists():
        return None
    try:
        with closing(Control(data_dir)) as control:
            control.check()
    except ControlUnusable as error:
        finding, _, mend = str(error).partition(": ")
        return Check("control state", "bad", finding, mend)
    return Check("control state", "ok", f"{FILE} is whole")


def served_checks(settings: Settings) -> Iterator[Check]:
    """The weights that are pointed at and the models that they name, of every project; ``control_check`` was well."""
    if not (settings.data_dir / FILE).exists():
        return
    with closing(Control(settings.data_dir)) as control:
        projects = sorted(control.items(_WEIGHTS))
    faults = []
    with closing(WeightsStore(settings.data_dir)) as store:
        for project in projects:
            pointer = store.pointer(project)
            try:
                document = store.document(project, pointer.version if pointer else None)
            except WeightsError as error:
                faults.append(Check("weights", "bad", f"project {project}: {error}", _MEND_WEIGHTS))
            else:
                faults += _models(settings, project, document)
    yield from faults
    if projects and not faults:
        yield Check("weights and models", "ok", f"those of {len(projects)} projects are whole")


def _models(settings: Settings, project: str, document: WeightsDocument) -> Iterator[Check]:
    named = [served.version for served in (document.model, document.canary) if served is not None]
    for version in named:
        try:
            load(settings.data_dir, project, version, load_vectors(settings.data_dir, settings).version)
        except ModelUnusable as error:
            yield Check("model", "bad", str(error), _MEND_MODEL)
