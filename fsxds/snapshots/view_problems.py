"""What is wrong in views, each problem once: that of a shared layer shows in many of them.

The cost follows what each layer adds to the problems of those below it, and takes from them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import PurePosixPath

from fsxds.model.values import HeldFile, Layers, Problem, Severity
from fsxds.snapshots.layers import LoadedLayer

# Views that are named in one problem.
MOST_NAMED = 3

_Found = tuple[Problem, Severity]
"""A problem may be worse in one view than in another."""


def merged_problems(
    views: Mapping[Layers, LoadedLayer], layer_of: Callable[[PurePosixPath], str]
) -> tuple[Problem, ...]:
    """Return what is wrong in any view, sorted by place; what does not show in all views with its layer says in which.

    Args:
        views: the last layer of each, as it was loaded.
        layer_of: returns the layer that a file is in.
    """
    above: defaultdict[int, list[Layers]] = defaultdict(list)
    loaded: dict[int, LoadedLayer] = {}
    for layers, last in views.items():
        for each in _with_below(last):
            loaded[id(each)] = each
            above[id(each)].append(layers)
    counts: Counter[_Found] = Counter()
    for number, each in loaded.items():
        counts.update(dict.fromkeys(map(_found, each.added), len(above[number])))
        counts.subtract(dict.fromkeys(map(_found, each.removed), len(above[number])))
    with_layer = Counter(name for layers in views for name in layers)
    partial = {found for found, count in counts.items() if 0 < count < with_layer[layer_of(found[0].path)]}
    shown: defaultdict[_Found, Counter[Layers]] = defaultdict(Counter)
    for number, each in loaded.items() if partial else ():
        for found in partial.intersection(map(_found, each.added)):
            shown[found].update(above[number])
        for found in partial.intersection(map(_found, each.removed)):
            shown[found].subtract(above[number])
    problems = [
        problem for problem, severity in counts if counts[problem, severity] and (problem, severity) not in partial
    ]
    for problem, severity in partial:
        counted = shown[problem, severity]
        problems.append(named_in(problem, (layers for layers in views if counted[layers] > 0)))
    return tuple(sorted({problem.elsewhere or problem for problem in problems}))


def _with_below(last: LoadedLayer) -> Iterator[LoadedLayer]:
    each: LoadedLayer | None = last
    while each is not None:
        yield each
        each = each.below


def _found(problem: Problem) -> _Found:
    return problem, problem.severity


def named_in(problem: Problem, views: Iterable[Layers]) -> Problem:
    """Return a problem that says in which views it shows, the first ones by their names."""
    # Neither sorted nor counted: a view that comes to be wanted later makes no other problem of what the log said.
    names = tuple(map(view_text, islice(views, MOST_NAMED + 1)))
    more = " and others" if len(names) > MOST_NAMED else ""
    message = f"{problem.message} (in {', '.join(names[:MOST_NAMED])}{more})"
    elsewhere = None if problem.elsewhere is None else replace(problem.elsewhere, message=message)
    return replace(problem, message=message, elsewhere=elsewhere)


def view_text(layers: Layers) -> str:
    """Write the layers of a view: `common + nodes/a`."""
    names = [name for name in layers if not name.startswith("/")]
    marked = f" with the variables of {layers[-1][1:]}" if len(names) < len(layers) and names else ""
    return (" + ".join(names) or "no layer") + marked


def merged_held(of_views: Iterable[Iterable[HeldFile]]) -> tuple[HeldFile, ...]:
    """Return the files that some view holds back; where nothing of a file is served in one of them, it says so."""
    held: dict[PurePosixPath, HeldFile] = {}
    for files in of_views:
        for file in files:
            known = held.setdefault(file.path, file)
            if known.has_last_good and not file.has_last_good:
                held[file.path] = file
    return tuple(sorted(held.values(), key=lambda file: file.path.parts))
