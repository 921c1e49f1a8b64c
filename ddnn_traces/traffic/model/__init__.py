"""A model of training traffic: fitted to measured runs, generating runs of any size, scored on runs it has not seen.

fit(dataset) gives a document; write and read keep it in a file; generate makes traffic from it; score compares.
"""

from ddnn_traces.traffic.model.document import Document, read, text, write
from ddnn_traces.traffic.model.fitting import fit, summary
from ddnn_traces.traffic.model.generation import Job, flow_list, traffic
from ddnn_traces.traffic.model.generation import write as generate
from ddnn_traces.traffic.model.scoring import score, wins

__all__ = [
    "Document", "Job", "fit", "flow_list", "generate", "read", "score", "summary", "text", "traffic", "wins", "write",
]  # fmt: skip
