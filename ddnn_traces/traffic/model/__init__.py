"""A model of training traffic: fitted to measured runs, generating runs of any size, scored on held-out runs.

fit(dataset) returns a document; write and read store it in a file; generate writes traffic from it; score compares
generated with measured runs. [traffic_model.md](traffic_model.md) describes it.
"""

from ddnn_traces.traffic.model.document import Document, read, text, write
from ddnn_traces.traffic.model.fit_model import fit, summary
from ddnn_traces.traffic.model.generation import Job, traffic
from ddnn_traces.traffic.model.generation import write as generate
from ddnn_traces.traffic.model.scoring import score, wins
from ddnn_traces.traffic.table_writer import flow_list

__all__ = [
    "Document", "Job", "fit", "flow_list", "generate", "read", "score", "summary", "text", "traffic", "wins", "write",
]  # fmt: skip
