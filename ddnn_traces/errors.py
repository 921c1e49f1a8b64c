"""Errors a user can cause. Each message says what happened, to which file, and what to try next."""


class DdnnTracesError(Exception):
    """Base of all errors that are the user's to mend; the command line prints the message alone."""

    exit_code = 1


class UsageError(DdnnTracesError):
    """The call is wrong: a missing path, an unknown name, a folder that is no dataset."""

    exit_code = 2


class CaptureError(DdnnTracesError):
    """A capture file could not be read."""


class EngineError(DdnnTracesError):
    """The program behind an engine is missing or failed."""


class MetadataError(DdnnTracesError):
    """A run.toml or runs.csv contradicts its schema."""


class LogError(DdnnTracesError):
    """A training log could not be read."""


class QueryError(UsageError):
    """An unknown query or parameter, or SQL that DuckDB refused."""


class StorageError(DdnnTracesError):
    """There is no room for what is to be written, or it cannot take the old dataset's place."""


class BusyError(DdnnTracesError):
    """Another ingest is writing the dataset, and the caller did not want to wait."""


class LedgerError(DdnnTracesError):
    """Records of a capture are neither in flows nor in the ledger."""


class RegressionError(UsageError):
    """A formula that cannot be used on the dataset's columns."""


class ModelError(UsageError):
    """A document that is no traffic model, or one of another version."""


class PredictionError(DdnnTracesError):
    """A job that the runs say nothing of, or that is not like them."""


class ReleaseError(DdnnTracesError):
    """A release that is damaged, cannot be had, or is not to be trusted."""


class PublishError(DdnnTracesError):
    """A dataset that is not published as it is: data checks fail, or a release is in the way."""


class LeakError(DdnnTracesError):
    """Something that a release must not tell is in it; the release was removed."""


class MissingExtra(UsageError):
    """A library that the default install leaves out is needed."""


class PushError(DdnnTracesError):
    """A release that could not be brought to its place, or a place that holds something else."""
