"""The page of `ddnn-traces explore`: a marimo app. The environment variable DDNN_TRACES_DATASET names the dataset."""

import marimo

app = marimo.App(width="full", app_title="ddnn-traces explore")


@app.cell
def _():
    import html
    import json
    import os

    import marimo as mo
    from mosaic_widget import MosaicWidget

    from ddnn_traces.explore import DATASET, RUNS
    from ddnn_traces.explore import contents as page
    from ddnn_traces.explore.answers import Answers, Choice, Limit
    from ddnn_traces.query.dataset import Dataset
    from ddnn_traces.text import printable

    where = os.environ[DATASET]
    with Dataset(where, json.loads(os.environ.get(RUNS, "[]")) or None, read_only=True) as every:
        run_ids, name = every.run_ids, html.escape(printable(every.name))
    return Answers, Choice, Limit, MosaicWidget, mo, name, page, run_ids, where


@app.cell
def _(mo, name, page, run_ids):
    runs = mo.ui.multiselect(
        run_ids,
        value=run_ids[:1],
        max_selections=page.MOST_SERIES,
        label=f"Runs (of {len(run_ids)}, at most {page.MOST_SERIES} at a time)",
        full_width=True,
    )
    mo.vstack(
        [
            mo.Html(f'<h1 style="font-size: 1.5rem">{name}</h1>'),
            runs,
            mo.md(
                "Draw over a chart of times, or click a cell or a bar (with Shift: several): the other charts and the "
                "table then show that part. A click beside it, or on it again, ends that. A colour is a run; of a "
                "single run it is the host that sends, or whose step it is."
            ),
        ]
    )
    return (runs,)


@app.cell
def _(Answers, MosaicWidget, mo):
    # One widget for good: the page's part of it has one connection and one cache of results.
    widget = MosaicWidget({"vspace": 0})
    answers = Answers(widget.send)
    widget.on_msg(widget._handle_custom_msg, remove=True)  # it answers where it is asked, so that nothing ends a query
    widget.on_msg(answers.ask)
    linked = mo.ui.anywidget(widget)
    return answers, linked, widget


@app.cell
def _(Choice, mo, where):
    made, set_made = mo.state(None)
    choice = Choice(where, set_made, mo.Thread)
    return choice, made


@app.cell
def _(choice, runs):
    choice.choose(runs.value)
    return


@app.cell
def _(made, mo, runs):
    if not runs.value:
        said = mo.callout("Choose a run.", kind="info")
    elif made() is None or made().runs != runs.value:
        said = mo.callout("The tables of these runs are being made. Another choice ends that.", kind="neutral")
    elif made().error:
        said = mo.callout(made().error, kind="danger")
    elif made().contents.is_empty:
        said = mo.callout("No packet and no step is known of this.", kind="warn")
    else:
        said = None
    mo.output.replace(said)
    return


@app.cell
def _(answers, made, mo, page, widget):
    mo.stop(made() is None or made().error)
    contents = made().contents
    widget.con = made().dataset.connection
    answers.use(widget.con)
    widget.spec = page.spec(contents)
    return (contents,)


@app.cell
def _(contents, linked, mo):
    mo.stop(contents.is_empty)
    without = (
        "No training log came with these runs, so there is no chart of steps. "
        "`ddnn-traces query DATASET inferred_steps` finds those that the traffic shows."
    )
    mo.vstack([linked, *([] if contents.steps else [mo.md(without)])])
    return


@app.cell
def _(mo):
    def table(rows, label):
        return mo.ui.table(rows, selection=None, show_data_types=False, show_column_summaries=False, label=label)

    return (table,)


@app.cell
def _(Limit, contents, linked, mo, page, table, widget):
    # the page tells its selections when it has drawn the charts
    mo.stop(contents.is_empty or page.EVERYTHING not in linked.value.get("params", {}))
    with Limit(widget.con):
        flows = page.flow_rows(widget.data(page.WINDOWS, filter_by=page.EVERYTHING)).pl()
    table(flows, "Flows, with what they sent in the chosen part")
    return


@app.cell
def _(Limit, contents, linked, mo, page, table, widget):
    mo.stop(not contents.collectives or page.TIME not in linked.value.get("params", {}))
    with Limit(widget.con):
        collectives = page.collective_rows(widget.data(page.COLLECTIVES, filter_by=page.TIME)).pl()
    table(collectives, "Collectives that the traffic shows, with those that begin in the chosen time")
    return


if __name__ == "__main__":
    app.run()
