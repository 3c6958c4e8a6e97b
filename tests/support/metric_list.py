"""The metrics as the docs list them: `python -m tests.support.metric_list` prints what to paste after a change."""

from __future__ import annotations

from fsxds.observe.metrics import CATALOGUE, LABELS


def metrics_section() -> str:
    """Return a Markdown table of the metrics, and one of their labels."""
    metrics = ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for row in CATALOGUE:
        labels = ", ".join(f"`{name}`" for name in row.labels)
        metrics.append(f"| `{row.name}` | {row.metric_type} | {labels} | {row.meaning} |")
    return "\n".join(
        (
            *metrics,
            "",
            "| label | values |",
            "| --- | --- |",
            *(f"| `{name}` | {meaning} |" for name, meaning in LABELS.items()),
        )
    )


if __name__ == "__main__":
    print(metrics_section())  # printing is its purpose
