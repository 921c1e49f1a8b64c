"""The page of `ddnn-traces explore`: a marimo app. The environment variable DDNN_TRACES_DATASET names the dataset.

Its address has the state of the page: runs, what they are chosen by, and the time that is shown. A control changes the
address alone, and the cells that read it follow.
"""

# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(width="full", app_title="ddnn-traces explore")


@app.cell
def _():
    import html
    import json
    import os

    import marimo as mo
    from mosaic_widget import MosaicWidget

    from ddnn_traces.explore import DATASET, RUNS, state
    from ddnn_traces.explore import contents as page
    from ddnn_traces.explore.answers import Answers, Choice, Selection
    from ddnn_traces.query.bounded import Limit
    from ddnn_traces.query.dataset import Dataset
    from ddnn_traces.report import explorer
    from ddnn_traces.text import printable

    where = os.environ[DATASET]
    with Dataset(where, json.loads(os.environ.get(RUNS, "[]")) or None, read_only=True) as every:
        known, name = explorer.settings(every), printable(every.name)
    return Answers, Choice, Limit, MosaicWidget, Selection, html, known, mo, name, page, state, where


@app.cell
def _(html, known, mo, name, state):
    address = state.Address(mo.query_params(), known)
    start = address.keep_runs(address.state().selection.runs)
    facets, set_facets = mo.state(start.facets)
    zoom, set_zoom = mo.state(start.selection.zoom)
    mo.Html(f'<h1 style="font-size: 1.5rem">{html.escape(name)}</h1>')
    return address, facets, set_facets, set_zoom, start, zoom


@app.cell
def _(address, facets, known, mo, set_facets, state):
    def _choice(facet, counts):
        named = {f"{value} ({count})": value for value, count in counts.items()}
        return mo.ui.dropdown(
            named,
            value=next((text for text, value in named.items() if value == facets().get(facet)), None),
            label=facet,
            allow_select_none=True,
            on_change=lambda value: set_facets(address.keep(**{facet: value}).facets),
        )

    choices = [_choice(*one) for one in state.counts(known, facets()).items()]  # marimo forgets what has no name
    mo.hstack(choices, justify="start", wrap=True)
    return (choices,)


@app.cell
def _(address, facets, known, mo, state):
    _chosen = address.state().selection.runs
    _options = state.fitting(known, facets(), _chosen)
    runs = mo.ui.multiselect(
        _options,
        value=list(_chosen),
        label=f"Runs ({len(_options)} of {len(known)} to choose from)",
        full_width=True,
        on_change=address.keep_runs,
    )
    mo.vstack(
        [
            runs,
            mo.md(
                "Draw over a chart of times, or click a cell or a bar (with Shift: several): the other charts and the "
                "tables then show that part. A click beside it, or on it again, ends that. A colour is a run; of a "
                "single run it is the host that sends, or whose step it is. The address keeps runs and zoom."
            ),
        ]
    )
    return (runs,)


@app.cell
def _(Selection, runs, zoom):
    selection = Selection(tuple(runs.value), zoom())
    return (selection,)


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
def _(choice, selection):
    choice.choose(selection)
    return


@app.cell
def _(made, mo, selection):
    if not selection.runs:
        said = mo.callout("Choose a run.", kind="info")
    elif made() is None or made().selection != selection:
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
def _(answers, made, mo, page, start, widget):
    mo.stop(made() is None or made().error)
    contents = made().contents
    widget.con = made().connection
    answers.use(widget.con)
    widget.spec = page.spec(contents, start.is_narrow)
    return (contents,)


@app.cell
def _(address, linked, made, mo, page, set_zoom, zoom):
    def _to(span):
        set_zoom(address.keep_zoom(span).selection.zoom)

    def _in(_):
        if span := page.brushed(linked.value.get("params", {}).get(page.TIME)):
            _to(span)

    buttons = [mo.ui.button(label="Zoom in to the drawn time", on_click=_in)]
    if zoom() != page.ALL and (zoom() or (made() and made().contents and made().contents.is_training)):
        buttons.append(mo.ui.button(label="Show all of the time", on_click=lambda _: _to(page.ALL)))
    mo.hstack(buttons, justify="start", wrap=True)
    return (buttons,)


@app.cell
def _(contents, linked, mo, page):
    mo.stop(contents.is_empty)
    without = []
    if not contents.steps:
        without.append(
            "No training log came with these runs, so there is no chart of logged steps"
            + (": the chart of collectives has those that the traffic shows. " if contents.collectives else ". ")
            + "`ddnn-traces query DATASET inferred_steps` finds them by pauses."
        )
    if len(contents.runs) > page.MOST_WITH_COLLECTIVES:
        without.append(f"Choose at most {page.MOST_WITH_COLLECTIVES} runs for a chart of their collectives.")
    mo.vstack([linked, *map(mo.md, without)])
    return


@app.cell
def _(mo):
    def table(rows, label):
        return mo.ui.table(rows, selection=None, show_data_types=False, show_column_summaries=False, label=label)

    return (table,)


@app.cell
def _(Limit, contents, linked, mo, page, table, where, widget):
    # the page tells its selections when it has drawn the charts
    mo.stop(contents.is_empty or page.EVERYTHING not in linked.value.get("params", {}))
    with Limit(widget.con):
        sent = widget.data(page.WINDOWS, filter_by=page.EVERYTHING)
        flows = page.flow_rows(sent).pl()
        commands = page.packets_commands(sent, where)
    packets = (
        "Their packets, from the captures, at any time:\n\n```sh\n" + "\n".join(commands) + "\n```"
        if commands
        else f"Choose at most {page.MOST_FLOWS} flows for a command that writes their packets."
    )
    mo.vstack([table(flows, "Flows, with what they sent in the chosen part"), mo.md(packets)])
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
