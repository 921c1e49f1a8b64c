"""Every figure by its name: `ddnn_traces.charts.volume_heatmaps(frame)`.

Each is a function from the frame of a query to an Altair chart; the frame may be filtered first. `Dataset.plot` draws
the figure of a query without a frame.
"""

from ddnn_traces.report.charts import cheng, farhat, gao, regression, style, topology, wire, zerwas
from ddnn_traces.report.charts.gao import duration_cdf, flow_gains, operating_boundary, progression
from ddnn_traces.report.charts.gao import panels as sweep_panels

#: The modules that fill style.CHARTS.
_MODULES = (cheng, farhat, gao, regression, topology, wire, zerwas)
#: Those of a sweep on ns-3, which are in no report.
OF_SWEEPS = (duration_cdf, flow_gains, operating_boundary, progression, sweep_panels)
__all__ = sorted([*style.CHARTS, "duration_cdf", "flow_gains", "operating_boundary", "progression", "sweep_panels"])

globals().update(style.CHARTS)
